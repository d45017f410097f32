"""Which instruction level this machine gets, and why. One table decides; EDGELLM_ISA forces a level.

A level names how the vector words are lowered and what LLVM may assume of the CPU. Results do not depend on it.
Next hop: `target.py`, what code is made for; `dots.py`, where levels differ.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Collection
from dataclasses import dataclass

from ...errors import OptionError, UnsupportedError

ARCHITECTURES = {"x86_64": "x86-64", "AMD64": "x86-64", "aarch64": "arm64", "arm64": "arm64", "ARM64": "arm64"}
"""Our name of an architecture, by what platform.machine() says on Linux, Windows and macOS."""


@dataclass(frozen=True, slots=True)
class Level:
    """arch: the architecture it exists on, "" for all. needs: CPU features it asks for, as LLVM spells them.

    tuned: compile for exactly this CPU; otherwise for the oldest one of the architecture.
    """

    name: str
    arch: str
    needs: tuple[str, ...]
    tuned: bool = True


_AVX2 = ("avx2", "fma", "f16c")
AVX512VNNI = Level("avx512vnni", "x86-64", (*_AVX2, "avx512f", "avx512bw", "avx512vl", "avx512vnni"))
AVXVNNI = Level("avxvnni", "x86-64", (*_AVX2, "avxvnni"))
AVX2 = Level("avx2", "x86-64", _AVX2)
I8MM = Level("i8mm", "arm64", ("dotprod", "i8mm"))
DOTPROD = Level("dotprod", "arm64", ("dotprod",))
GENERIC = Level("generic", "", (), False)
LEVELS = (AVX512VNNI, AVXVNNI, AVX2, I8MM, DOTPROD, GENERIC)
"""Best first."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The level chosen, and one sentence that says why."""

    level: Level
    reason: str


def get_level(name: str) -> Level:
    """The level called `name`; StopIteration if there is none."""
    return next(lv for lv in LEVELS if lv.name == name)


def architecture() -> str:
    """x86-64, arm64, or what the system calls this machine."""
    machine = platform.machine()
    return ARCHITECTURES.get(machine, machine.lower())


def host_features() -> frozenset[str]:
    """Names of the features of this CPU, as LLVM spells them: what LLVM finds, and what it does not look for on ARM."""
    import llvmlite.binding as llvm

    found = {name for name, has in llvm.get_host_cpu_features().items() if has}
    if architecture() == "arm64":
        found |= _arm_features()
    return frozenset(found)


def _arm_features() -> set[str]:
    """dotprod and i8mm, by the system's own account."""
    if sys.platform == "darwin":
        import ctypes

        library = ctypes.CDLL(None)

        def has(name: str) -> bool:
            value, size = ctypes.c_int(0), ctypes.c_size_t(4)
            at = f"hw.optional.arm.{name}".encode()
            return library.sysctlbyname(at, ctypes.byref(value), ctypes.byref(size), None, 0) == 0 and value.value == 1

        names = {"dotprod": "FEAT_DotProd", "i8mm": "FEAT_I8MM"}
        return {ours for ours, theirs in names.items() if has(theirs)}
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as f:
            lines = [line.split(":")[-1].split() for line in f if line.startswith("Features")]
    except OSError:
        return set()
    # A kernel lists every core: what only the fast ones have cannot be counted on.
    common = set(lines[0]).intersection(*lines) if lines else set()
    return {ours for ours, theirs in {"dotprod": "asimddp", "i8mm": "i8mm"}.items() if theirs in common}


def missing(level: Level, arch: str, features: Collection[str]) -> str:
    """-> what a machine lacks for `level`, "" if nothing."""
    if level.arch not in ("", arch):
        return f"a CPU of the architecture {level.arch} (this is {arch})"
    return ", ".join(f for f in level.needs if f not in features)


def choose(forced: str | None = None, shipped: Collection[str] = ()) -> Choice:
    """The best level of this machine, or the one that `forced` or EDGELLM_ISA names.

    shipped: names of levels whose kernels came with the application; the best of those, if any, needs no compiling.
    Raises OptionError for an unknown name, UnsupportedError for a level this CPU cannot run.
    """
    forced = forced or os.environ.get("EDGELLM_ISA") or None
    arch, features = architecture(), host_features()
    if forced is None:
        usable = [lv for lv in LEVELS if not missing(lv, arch, features)]
        for level in usable:
            if level.name in shipped:
                return Choice(level, "the best level that the application brought kernels for")
        return Choice(usable[0], f"best level that this CPU ({platform.machine()}) has")
    for level in LEVELS:
        if level.name == forced:
            lacks = missing(level, arch, features)
            if lacks:
                raise UnsupportedError(f"EDGELLM_ISA={forced} needs {lacks}; unset it to let edgellm choose")
            return Choice(level, "forced by EDGELLM_ISA")
    names = ", ".join(lv.name for lv in LEVELS)
    raise OptionError(f"EDGELLM_ISA={forced} is not an instruction level; use one of {names}")
