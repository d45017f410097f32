"""Which instruction level a machine gets, whatever the machine says of itself."""

from __future__ import annotations

import platform

import pytest

from edgellm.errors import OptionError, UnsupportedError
from edgellm.kernels.cpu import isa

AVX2_FEATURES = frozenset({"sse2", "avx", "avx2", "fma", "f16c"})


@pytest.fixture(autouse=True)
def unforced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EDGELLM_ISA", raising=False)


def pretend(monkeypatch: pytest.MonkeyPatch, machine: str, features: frozenset[str]) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(isa, "host_features", lambda: features)


@pytest.mark.parametrize(
    ("machine", "features", "level"),
    [
        ("x86_64", AVX2_FEATURES, "avx2"),
        ("AMD64", AVX2_FEATURES | {"avx512f"}, "avx2"),
        ("x86_64", AVX2_FEATURES - {"f16c"}, "generic"),
        ("x86_64", frozenset({"sse2"}), "generic"),
        ("aarch64", frozenset({"neon"}), "generic"),
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
    assert level in isa.LEVELS and not isa.missing(level, platform.machine(), isa.host_features())


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


@pytest.mark.parametrize("name", ["avx", "AVX2", "neon", " generic"])
def test_an_unknown_level_names_those_there_are(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("EDGELLM_ISA", name)
    with pytest.raises(OptionError, match=f"EDGELLM_ISA={name} is not .*; use one of avx2, generic$"):
        isa.choose()


def test_a_level_that_the_machine_lacks_names_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGELLM_ISA", "avx2")
    pretend(monkeypatch, "x86_64", AVX2_FEATURES - {"fma", "f16c"})
    with pytest.raises(UnsupportedError, match="EDGELLM_ISA=avx2 needs fma, f16c; unset it"):
        isa.choose()
    pretend(monkeypatch, "aarch64", AVX2_FEATURES)
    with pytest.raises(UnsupportedError, match=r"needs a x86_64 or AMD64 machine \(this is aarch64\)"):
        isa.choose()
