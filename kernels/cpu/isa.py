"""Which instruction level this machine gets, and why. One table decides; EDGELLM_ISA forces a level.

A level names how the vector words are lowered and what LLVM may assume of the CPU. Results do not depend on it.
"""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass

from ...errors import OptionError, UnsupportedError


@dataclass(frozen=True, slots=True)
class Level:
    """machine: platform.machine() values it exists on, none for all. needs: CPU features it asks for.

    tuned: compile for exactly this CPU; otherwise for the oldest one of the architecture.
    """

    name: str
    machines: tuple[str, ...]
    needs: tuple[str, ...]
    tuned: bool


AVX2 = Level("avx2", ("x86_64", "AMD64"), ("avx2", "fma", "f16c"), True)
GENERIC = Level("generic", (), (), False)
LEVELS = (AVX2, GENERIC)


@dataclass(frozen=True, slots=True)
class Choice:
    """The level chosen, and one sentence that says why."""

    level: Level
    reason: str


def host_features() -> frozenset[str]:
    """Names of the features that LLVM finds on this CPU."""
    import llvmlite.binding as llvm

    return frozenset(name for name, has in llvm.get_host_cpu_features().items() if has)


def missing(level: Level, machine: str, features: frozenset[str]) -> str:
    """-> what this machine lacks for `level`, "" if nothing."""
    if level.machines and machine not in level.machines:
        return f"a {' or '.join(level.machines)} machine (this is {machine})"
    return ", ".join(f for f in level.needs if f not in features)


def choose(forced: str | None = None) -> Choice:
    """The best level of this machine, or the one that `forced` or EDGELLM_ISA names.

    Raises OptionError for an unknown name, UnsupportedError for a level this CPU cannot run.
    """
    forced = forced or os.environ.get("EDGELLM_ISA") or None
    machine, features = platform.machine(), host_features()
    if forced is None:
        level = next(lv for lv in LEVELS if not missing(lv, machine, features))
        return Choice(level, f"best level that this CPU ({machine}) has")
    for level in LEVELS:
        if level.name == forced:
            lacks = missing(level, machine, features)
            if lacks:
                raise UnsupportedError(f"EDGELLM_ISA={forced} needs {lacks}; unset it to let edgellm choose")
            return Choice(level, "forced by EDGELLM_ISA")
    names = ", ".join(lv.name for lv in LEVELS)
    raise OptionError(f"EDGELLM_ISA={forced} is not an instruction level; use one of {names}")
