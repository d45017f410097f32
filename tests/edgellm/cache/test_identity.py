"""What keys and values depend on is in the identity; what they do not depend on is not."""

from __future__ import annotations

from pathlib import Path

import pytest
from stored_blocks import BLOCK_BYTES, make_identity

from edgellm.cache import identity as identity_module
from edgellm.cache.identity import Identity, differing, digest
from edgellm.cache.model_hash import ModelHash
from edgellm.kernels.ops import Builder, CacheLayer, Program, Rope


def make(program: Program, precise: bool = False) -> bytes:
    return digest(Identity(program, ("f16", "f16"), precise, BLOCK_BYTES, ModelHash([], str, Path())).parts("m"))


def turned(
    base: float = 1e4, last_position: int | None = None, layer: CacheLayer | None = None, width: int = 32
) -> Program:
    builder = Builder()
    x = builder.embed("table", width)
    k = builder.rope(x, 1, Rope(32, base, "halves"), last_position)
    return builder.finish(builder.attention(x, k, x, 1, layer or CacheLayer(1, 32), 1.0))


def test_everything_in_the_program_counts() -> None:
    programs = [
        turned(),
        turned(base=2e4),
        turned(last_position=100),
        turned(layer=CacheLayer(1, 32, 64)),
        turned(layer=CacheLayer(1, 32, 64, 4)),
        turned(width=64),
    ]
    assert len({make(program) for program in programs} | {make(turned(), precise=True)}) == 7
    assert make(turned()) == make(turned())


def test_the_version_of_the_arithmetic_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = digest(make_identity(tmp_path).parts("m"))
    monkeypatch.setattr(identity_module, "NUMERICS_VERSION", 99)
    assert digest(make_identity(tmp_path).parts("m")) != before
    assert len(before) == 16


def test_what_differs_is_named_for_people() -> None:
    ours = {"model": "1", "cache_type_k": "f16", "precise": "False"}
    assert differing(ours, ours) == []
    assert differing(ours, {**ours, "model": "2" * 99, "precise": "True"}) == [
        "the model's weights",
        "precise (True there, False here)",
    ]
    assert differing(ours, {"model": "1", "precise": "False", "x" * 99: "1"}) == ["cache_type_k", "x" * 64]
