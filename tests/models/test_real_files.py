"""Builders on GGUF files, tiny ones of every format and the two real models: names and shapes are the converter's."""

from __future__ import annotations

from pathlib import Path

import kl
import numpy as np
import pytest
from tiny_models import write_tiny

from edgellm import models
from edgellm.errors import ModelFileError
from edgellm.gguf import open_gguf

IDS = [5, 80, 3, 3, 17, 42, 9, 100, 2, 64]


@pytest.mark.parametrize("arch", ["llama", "gemma3"])
def test_rounded_weights_give_nearly_the_same_words(arch: str, tmp_path: Path) -> None:
    write_tiny(tmp_path / "exact.gguf", arch, layers=7)
    write_tiny(tmp_path / "rounded.gguf", arch, layers=7, formats="Q8_0")
    exact, rounded = (kl.reference_logits(tmp_path / f"{n}.gguf", IDS) for n in ("exact", "rounded"))
    assert exact.shape == (10, 128) and np.isfinite(exact).all()
    assert 0 < kl.divergence(exact, rounded).mean() < 1e-2
    write_tiny(tmp_path / "other.gguf", arch, layers=7, seed=1)
    assert kl.divergence(exact, kl.reference_logits(tmp_path / "other.gguf", IDS)).mean() > 0.1


def test_everything_optional_at_once(tmp_path: Path) -> None:
    rope = {"scaling.type": "yarn", "scaling.factor": 4.0, "scaling.original_context_length": 64}
    path = write_tiny(tmp_path / "all.gguf", biases=True, tied=False, rope=rope, rope_factors=[1.0] * 4 + [8.0] * 4)
    logits = kl.reference_logits(path, IDS)
    plain = kl.reference_logits(write_tiny(path, biases=True, tied=False), IDS)
    assert np.isfinite(logits).all() and not np.allclose(logits, plain, atol=1e-2)


def test_o10_head_sizes_in_a_file(tmp_path: Path) -> None:
    sizes = {"hidden": 48, "heads": 4, "kv_heads": 2, "head_dim": 32}
    write_tiny(tmp_path / "good.gguf", **sizes)
    assert kl.reference_logits(tmp_path / "good.gguf", IDS).shape == (10, 128)
    for key in ("attention.key_length", "attention.head_count"):
        write_tiny(tmp_path / "bad.gguf", metadata={f"llama.{key}": 0}, **sizes)
        with open_gguf(tmp_path / "bad.gguf") as gguf, pytest.raises(ModelFileError, match=f"llama.{key} is 0"):
            models.get("llama").build(gguf.metadata, gguf.tensors)


@pytest.mark.model
def test_smollm2_is_described_whole(smollm2_path: Path) -> None:
    with open_gguf(smollm2_path) as gguf:
        program = models.get("llama").build(gguf.metadata, gguf.tensors)
    assert program.output.width == 49152 and len(program.cache_layers) == 30
    assert {(c.num_kv_heads, c.head_dim, c.window) for c in program.cache_layers} == {(3, 64, None)}


@pytest.mark.model
def test_gemma3_is_described_whole(gemma3_path: Path) -> None:
    with open_gguf(gemma3_path) as gguf:
        program = models.get("gemma3").build(gguf.metadata, gguf.tensors)
    assert program.output.width == 262144
    assert [c.window for c in program.cache_layers] == ([512] * 5 + [None]) * 3
