"""What machine code is made for: an instruction level on a system, for this very CPU or for every CPU of the level.

Knows no kernel and no folder. Next hop: `compile.py` makes code for a target, `objects.py` and `shipped.py` keep it.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import Any

import llvmlite.binding as llvm

from ...errors import OptionError
from . import isa

SYSTEMS = ("linux", "macos", "windows")
_TRIPLES = {
    ("linux", "x86-64"): "x86_64-unknown-linux-gnu",
    ("linux", "arm64"): "aarch64-unknown-linux-gnu",
    ("macos", "x86-64"): "x86_64-apple-macosx10.13.0",
    ("macos", "arm64"): "arm64-apple-macosx11.0.0",
    ("windows", "x86-64"): "x86_64-pc-windows-msvc",
    ("windows", "arm64"): "aarch64-pc-windows-msvc",
}


@dataclass(frozen=True, slots=True)
class Target:
    """triple, cpu, features: as LLVM spells them; cpu "" is the oldest of the architecture."""

    level: isa.Level
    system: str
    arch: str
    triple: str
    cpu: str
    features: str

    @property
    def name(self) -> str:
        """What is the same for every CPU of the level: linux-x86-64-avx2."""
        return f"{self.system}-{self.arch}-{self.level.name}"

    def to_text(self) -> str:
        """One line that `from_text` reads."""
        return json.dumps([self.level.name, self.system, self.arch, self.triple, self.cpu, self.features])

    @classmethod
    def from_text(cls, text: str) -> Target:
        """What `to_text` wrote."""
        level, *rest = json.loads(text)
        return cls(isa.get_level(level), *rest)

    @property
    def has_halves(self) -> bool:
        """Whether the CPU converts between float16 and float32."""
        return self.arch == "arm64" or "f16c" in self.level.needs


def system() -> str:
    """The system this process runs on, in our words."""
    return {"darwin": "macos", "win32": "windows"}.get(sys.platform, sys.platform)


def _features(level: isa.Level) -> list[str]:
    return [f"+{name}" for name in level.needs]


def host_target(level: isa.Level) -> Target:
    """`level` on this machine, for exactly its CPU if the level is tuned."""
    name, features, arch = "", "", isa.architecture()
    if level.tuned or arch != "x86-64":
        name = llvm.get_host_cpu_name()
        features = ",".join(filter(None, [llvm.get_host_cpu_features().flatten(), *_features(level)]))
    return Target(level, system(), arch, llvm.get_process_triple(), name, features)


def any_target(level: isa.Level, system: str, arch: str) -> Target:
    """`level` on any machine that has it: nothing is assumed but what the level needs."""
    cpu = "generic" if arch == "arm64" else ""
    return Target(level, system, arch, _TRIPLES[system, arch], cpu, ",".join(_features(level)))


def target_names() -> list[str]:
    """Names that `named_target` takes, beside native."""
    arches = sorted(set(isa.ARCHITECTURES.values()))
    return [f"{arch}-{lv.name}" for arch in arches for lv in isa.LEVELS if lv.arch in ("", arch)]


def named_target(name: str, system_name: str) -> Target:
    """The target for any machine called `name` (arm64-dotprod; native is this machine's best level) on a system.

    Raises OptionError for names there are not.
    """
    if system_name not in SYSTEMS:
        raise OptionError(f"--os {system_name} is not known; use one of {', '.join(SYSTEMS)}")
    if name == "native":
        name = f"{isa.architecture()}-{isa.choose().level.name}"
    if name not in target_names():
        raise OptionError(f"--target {name} is not known; use native or one of {', '.join(target_names())}")
    arch = next(a for a in set(isa.ARCHITECTURES.values()) if name.startswith(f"{a}-"))
    return any_target(isa.get_level(name[len(arch) + 1 :]), system_name, arch)


def target_machine(target: Target) -> Any:
    """LLVM's code generator for a target. It may be another machine's, then only to make objects."""
    if target.triple == llvm.get_process_triple():
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
    else:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
    llvm.initialize_native_asmparser()  # assembly inside kernels is x86's alone
    # As Numba does: static where all code lies together, what the system wants elsewhere.
    reloc = "static" if target.arch == "x86-64" else "default"
    return llvm.Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu, features=target.features, opt=3, reloc=reloc, codemodel="jitdefault", jit=True
    )
