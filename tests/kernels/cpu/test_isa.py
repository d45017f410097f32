"""Which instruction level a machine gets, whatever the machine says of itself."""

from __future__ import annotations

import io
import platform
import sys

import pytest

from edgellm.errors import OptionError, UnsupportedError
from edgellm.kernels.cpu import isa

AVX2_FEATURES = frozenset({"sse2", "avx", "avx2", "fma", "f16c"})
AVX512_FEATURES = AVX2_FEATURES | {"avx512f", "avx512bw", "avx512vl", "avx512vnni"}


@pytest.fixture(autouse=True)
def unforced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EDGELLM_ISA", raising=False)


def pretend(monkeypatch: pytest.MonkeyPatch, machine: str, features: frozenset[str]) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(isa, "host_features", lambda: features)


@pytest.mark.parametrize(
    ("machine", "features", "level"),
    [
        ("x86_64", AVX512_FEATURES, "avx512vnni"),
        ("AMD64", AVX512_FEATURES | {"avxvnni"}, "avx512vnni"),
        ("x86_64", AVX512_FEATURES - {"avx512vl"}, "avx2"),
        ("x86_64", AVX512_FEATURES - {"avx512vnni"}, "avx2"),
        ("x86_64", AVX2_FEATURES | {"avxvnni"}, "avxvnni"),
        ("x86_64", (AVX2_FEATURES | {"avxvnni"}) - {"fma"}, "generic"),
        ("x86_64", AVX2_FEATURES, "avx2"),
        ("AMD64", AVX2_FEATURES | {"avx512f"}, "avx2"),
        ("x86_64", AVX2_FEATURES - {"f16c"}, "generic"),
        ("x86_64", frozenset({"sse2"}), "generic"),
        ("aarch64", frozenset({"neon", "dotprod", "i8mm"}), "i8mm"),
        ("ARM64", frozenset({"neon", "dotprod"}), "dotprod"),
        ("arm64", frozenset({"neon", "i8mm"}), "generic"),
        ("aarch64", frozenset({"neon"}), "generic"),
        ("x86_64", frozenset({"dotprod", "i8mm"}), "generic"),
        ("arm64", AVX2_FEATURES, "generic"),
        ("riscv64", frozenset(), "generic"),
    ],
)
def test_best_level(monkeypatch: pytest.MonkeyPatch, machine: str, features: frozenset[str], level: str) -> None:
    pretend(monkeypatch, machine, features)
    choice = isa.choose()
    assert choice.level.name == level and machine in choice.reason


def test_this_machine_gets_one_it_has() -> None:
    level = isa.choose().level
    assert level in isa.LEVELS and not isa.missing(level, isa.architecture(), isa.host_features())


def test_every_machine_has_the_last_level() -> None:
    assert isa.missing(isa.LEVELS[-1], "anything", frozenset()) == ""


def test_a_level_is_forced_by_argument_or_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, "x86_64", AVX2_FEATURES)
    assert isa.choose("generic").level is isa.GENERIC
    monkeypatch.setenv("EDGELLM_ISA", "generic")
    assert isa.choose().level is isa.GENERIC and "EDGELLM_ISA" in isa.choose().reason
    assert isa.choose("avx2").level is isa.AVX2
    monkeypatch.setenv("EDGELLM_ISA", "")
    assert isa.choose().level is isa.AVX2


@pytest.mark.parametrize("name", ["avx", "AVX2", "neon", "avx512-vnni", " generic"])
def test_an_unknown_level_names_those_there_are(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("EDGELLM_ISA", name)
    with pytest.raises(
        OptionError,
        match=f"EDGELLM_ISA={name} is not .*; use one of avx512vnni, avxvnni, avx2, i8mm, dotprod, generic$",
    ):
        isa.choose()


def test_a_level_that_the_machine_lacks_names_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGELLM_ISA", "avx2")
    pretend(monkeypatch, "x86_64", AVX2_FEATURES - {"fma", "f16c"})
    with pytest.raises(UnsupportedError, match="EDGELLM_ISA=avx2 needs fma, f16c; unset it"):
        isa.choose()
    pretend(monkeypatch, "aarch64", AVX2_FEATURES)
    with pytest.raises(UnsupportedError, match=r"needs a CPU of the architecture x86-64 \(this is arm64\)"):
        isa.choose()


def test_levels_are_best_first_and_each_can_be_forced(monkeypatch: pytest.MonkeyPatch) -> None:
    everything = {"x86-64": "x86_64", "arm64": "aarch64", "": "riscv64"}
    for level in isa.LEVELS:
        pretend(monkeypatch, everything[level.arch], frozenset(level.needs) | {"avx512vnni"})
        assert isa.choose(level.name).level is level
        best = isa.choose().level
        assert isa.LEVELS.index(best) <= isa.LEVELS.index(level)


@pytest.mark.parametrize(
    ("shipped", "level"),
    [
        (["avx2", "generic"], "avx2"),
        (["generic"], "generic"),
        (["avx2", "avxvnni"], "avxvnni"),
        (["avx512vnni", "dotprod"], "avxvnni"),  # what came cannot run here: the machine's own best
        ([], "avxvnni"),
    ],
)
def test_what_came_with_the_application_is_preferred(
    monkeypatch: pytest.MonkeyPatch, shipped: list[str], level: str
) -> None:
    pretend(monkeypatch, "x86_64", AVX2_FEATURES | {"avxvnni"})
    choice = isa.choose(shipped=shipped)
    assert choice.level.name == level
    assert ("application" in choice.reason) == (level in shipped)
    assert isa.choose("avx2", shipped).reason == "forced by EDGELLM_ISA"


CPUINFO = "processor\t: {n}\nFeatures\t: fp asimd {has}\nCPU part\t: 0xd05\n\n"


@pytest.mark.skipif(sys.platform == "darwin", reason="macOS is asked, it has no /proc")
@pytest.mark.parametrize(
    ("cores", "features"),
    [
        (["asimddp i8mm", "asimddp i8mm"], {"dotprod", "i8mm"}),
        (["asimddp", "asimddp i8mm"], {"dotprod"}),  # what only some cores have cannot be counted on
        (["", "asimddp"], set()),
        ([], set()),
    ],
)
def test_arm_features_are_those_of_every_core(
    monkeypatch: pytest.MonkeyPatch, cores: list[str], features: set[str]
) -> None:
    text = "".join(CPUINFO.format(n=n, has=has) for n, has in enumerate(cores))
    monkeypatch.setattr("builtins.open", lambda *_, **__: io.StringIO(text))
    assert isa._arm_features() == features


def test_a_system_that_tells_no_arm_features(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise FileNotFoundError

    monkeypatch.setattr("sys.platform", "win32")
    monkeypatch.setattr("builtins.open", refuse)
    assert isa._arm_features() == set()
