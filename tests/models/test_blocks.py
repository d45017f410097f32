"""Blocks that families share: what files may keep fused, rows that are dropped, faults that are named."""

from __future__ import annotations

import numpy as np
import pytest

from edgellm.errors import ModelFileError, UnsupportedError
from edgellm.kernels import reference

IDS = [3, 1, 4, 1, 5, 9, 2, 6]


def with_biases(llama):
    file = llama()
    for i in range(2):
        file.shapes |= {f"blk.{i}.attn_{c}.bias": (n,) for c, n in (("q", 128), ("k", 64), ("v", 64))}
    return file


def test_queries_keys_and_values_may_lie_in_one_matrix(llama) -> None:
    file = with_biases(llama)
    weights = file.weights()
    want = reference.run(file.build(), weights, IDS)
    for i in range(2):
        for kind in ("weight", "bias"):
            parts = [f"blk.{i}.attn_{c}.{kind}" for c in "qkv"]
            fused = np.concatenate([weights[name] for name in parts])
            weights[f"blk.{i}.attn_qkv.{kind}"] = fused
            file.shapes[f"blk.{i}.attn_qkv.{kind}"] = fused.shape
            for name in parts:
                del file.shapes[name]
    got = reference.run(file.build(), weights, IDS)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    file.shapes["blk.1.attn_qkv.weight"] = (255, 48)
    with pytest.raises(ModelFileError, match=r"blk\.1\.attn_qkv\.weight has the shape \(255, 48\).*\(256, 48\)"):
        file.build()


def test_parts_begin_at_whole_groups_of_rows(llama) -> None:
    file = llama(**{"attention.head_count": 1, "attention.head_count_kv": 1, "attention.key_length": 12})
    file.metadata["llama.attention.value_length"] = 12
    file.shapes["blk.0.attn_qkv.weight"] = (36, 48)
    with pytest.raises(UnsupportedError, match=r"blk\.0\.attn_qkv\.weight: .* row 12 on, no multiple of 8"):
        file.build()


def test_the_output_may_have_a_bias(llama) -> None:
    file = llama()
    plain = reference.run(file.build(), file.weights(), IDS)
    file.shapes["output.bias"] = (29,)
    weights = file.weights() | {"output.bias": np.arange(29, dtype=np.float32)}
    got = reference.run(file.build(), weights, IDS)
    np.testing.assert_allclose(got - plain, np.broadcast_to(np.arange(29), got.shape), atol=1e-4)


def test_rows_without_wanted_logits_end_behind_the_last_attention(gemma3) -> None:
    names = [op.name for op in gemma3().build().ops]
    last = max(i for i, name in enumerate(names) if name == "attention")
    assert [i for i, name in enumerate(names) if name == "logit_rows"] == [last + 1, last + 2]
