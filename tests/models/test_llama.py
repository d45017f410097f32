"""The llama builder: O10's shapes, O11's rope scaling, and the whole network against one written out in loops."""

from __future__ import annotations

import math

import numpy as np
import pytest

from edgellm.errors import ModelFileError, UnsupportedError
from edgellm.kernels import reference

IDS = [3, 1, 4, 1, 5, 9, 2, 6]


def forward(w: dict[str, np.ndarray], ids: list[int], heads: int, kv_heads: int, dim: int, layers: int) -> np.ndarray:
    """Llama one position, one head and one pair at a time, in float64: independent of kernels/reference.py."""

    def norm(x: np.ndarray, g: np.ndarray) -> np.ndarray:
        return x / math.sqrt(sum(v * v for v in x) / len(x) + 1e-5) * g

    def turn(head: np.ndarray, position: int) -> np.ndarray:
        out = head.copy()
        for i in range(dim // 2):
            z = complex(head[2 * i], head[2 * i + 1]) * np.exp(1j * position * 10000.0 ** (-2 * i / dim))
            out[2 * i], out[2 * i + 1] = z.real, z.imag
        return out

    w = {name: value.astype(np.float64) for name, value in w.items()}
    cache: list[list[tuple[np.ndarray, np.ndarray]]] = [[] for _ in range(layers)]
    out = []
    for position, token in enumerate(ids):
        x = w["token_embd.weight"][token]
        for i in range(layers):
            t = {n.split(".", 2)[2]: v for n, v in w.items() if n.startswith(f"blk.{i}.")}
            h = norm(x, t["attn_norm.weight"])
            q, k, v = (t[f"attn_{c}.weight"] @ h + t.get(f"attn_{c}.bias", 0.0) for c in "qkv")
            k = np.concatenate([turn(p, position) for p in k.reshape(kv_heads, dim)])
            cache[i].append((k, v))
            heads_out = []
            for head in range(heads):
                mine = turn(q[head * dim : head * dim + dim], position)
                part = slice(head * kv_heads // heads * dim, (head * kv_heads // heads + 1) * dim)
                scores = [math.exp(mine @ past[0][part] / math.sqrt(dim)) for past in cache[i]]
                mixed = sum(s * past[1][part] for s, past in zip(scores, cache[i], strict=True))
                heads_out.append(mixed / sum(scores))
            x = x + t["attn_output.weight"] @ np.concatenate(heads_out)
            h = norm(x, t["ffn_norm.weight"])
            gate = t["ffn_gate.weight"] @ h
            x = x + t["ffn_down.weight"] @ (gate / (1 + np.exp(-gate)) * (t["ffn_up.weight"] @ h))
        out.append(w.get("output.weight", w["token_embd.weight"]) @ norm(x, w["output_norm.weight"]))
    return np.array(out)


def test_explicit_head_size_and_tied_output(llama) -> None:
    file = llama()
    program, w = file.build(), file.weights()
    assert program.output.width == 29
    got = reference.run(program, w, IDS)
    np.testing.assert_allclose(got, forward(w, IDS, 4, 2, 32, 2), rtol=2e-5, atol=2e-5)


def test_untied_output_biases_and_absent_kv_heads(llama) -> None:
    file = llama(**{"attention.head_count_kv": None, "attention.key_length": None, "attention.value_length": None})
    for i in range(2):
        for c in "qkv":
            file.shapes[f"blk.{i}.attn_{c}.weight"] = (48, 48)
            file.shapes[f"blk.{i}.attn_{c}.bias"] = (48,)
        file.shapes[f"blk.{i}.attn_output.weight"] = (48, 48)
    file.shapes["output.weight"] = (29, 48)
    w = file.weights()
    got = reference.run(file.build(), w, IDS)
    np.testing.assert_allclose(got, forward(w, IDS, 4, 4, 12, 2), rtol=2e-5, atol=2e-5)


def test_kv_heads_may_differ_by_layer(llama) -> None:
    file = llama(**{"attention.head_count_kv": np.array([2, 4], np.int32)})
    file.shapes |= {f"blk.1.attn_{c}.weight": (128, 48) for c in "kv"}
    assert [layer.num_kv_heads for layer in file.build().cache_layers] == [2, 4]


def test_mistral_s_window_is_that_of_every_layer(llama) -> None:
    assert [layer.window for layer in llama(**{"attention.sliding_window": 5}).build().cache_layers] == [5, 5]
    assert [layer.window for layer in llama(**{"attention.sliding_window": 0}).build().cache_layers] == [None, None]


def test_only_wanted_rows_are_computed(llama) -> None:
    file = llama()
    program, w = file.build(), file.weights()
    every = reference.run(program, w, IDS)
    np.testing.assert_allclose(reference.run(program, w, IDS, [2, 7]), every[[2, 7]], rtol=1e-5, atol=1e-5)
    assert reference.run(program, w, IDS, []).shape == (0, 29)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("attention.key_length", 0, "llama.attention.key_length is 0"),
        ("attention.head_count", 0, "llama.attention.head_count is 0"),
        ("attention.head_count_kv", 0, "llama.attention.head_count_kv is 0"),
        ("attention.head_count_kv", 3, "divisor of attention.head_count, 4"),
        ("attention.head_count_kv", np.array([2, 0], np.int32), "head_count_kv is array"),
        ("attention.head_count_kv", np.array([2], np.int32), "2 whole numbers"),
        ("attention.head_count", None, "lacks llama.attention.head_count"),
        ("block_count", None, "lacks llama.block_count"),
        ("block_count", 3, "lacks the tensor blk.2.attn_norm.weight"),
        ("block_count", -1, "llama.block_count is -1"),
        ("block_count", 2**31, "llama.block_count is 2147483648, but must be a whole number from 1 to 4096"),
        ("block_count", True, "llama.block_count is True"),
        ("embedding_length", "48", "llama.embedding_length is '48'"),
        ("embedding_length", 64, "tensor token_embd.weight has the shape"),
        ("feed_forward_length", None, "lacks llama.feed_forward_length"),
        ("feed_forward_length", 2**62, "tensor blk.0.ffn_gate.weight has the shape"),
        ("attention.layer_norm_rms_epsilon", float("nan"), "rms_epsilon is nan"),
        ("attention.layer_norm_rms_epsilon", None, "lacks llama.attention.layer_norm_rms_epsilon"),
        ("rope.dimension_count", 31, "rope.dimension_count is 31"),
        ("rope.dimension_count", 64, "rope.dimension_count is 64"),
        ("rope.freq_base", 0.0, "rope.freq_base is 0.0"),
        ("rope.scaling.type", 7, "rope.scaling.type is 7"),
        ("rope.scaling.type", np.array([1, 2]), "rope.scaling.type is array([1, 2])"),
    ],
)
def test_senseless_metadata_is_named(llama, key: str, value: object, message: str) -> None:
    with pytest.raises(ModelFileError) as error:
        llama(**{key: value}).build()
    assert message in str(error.value) and "\n" not in str(error.value)


def test_a_tensor_of_another_shape_is_named(llama) -> None:
    file = llama()
    file.shapes["blk.1.attn_k.weight"] = (48, 64)
    with pytest.raises(ModelFileError, match=r"tensor blk\.1\.attn_k\.weight has the shape \(48, 64\).*\(64, 48\)"):
        file.build()


def test_embedding_rows_are_the_tokens(llama) -> None:
    file = llama()
    file.metadata["tokenizer.ggml.tokens"].append("one more")
    with pytest.raises(ModelFileError, match=r"token_embd\.weight has the shape \(29, 48\).*\(30, 48\)"):
        file.build()
    del file.metadata["tokenizer.ggml.tokens"]
    assert file.build().output.width == 29


def test_a_file_of_vocabulary_only(llama) -> None:
    file = llama()
    file.shapes.clear()
    with pytest.raises(ModelFileError, match=r"token_embd\.weight; this file holds no tensors"):
        file.build()


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("attention.value_length", 16, "attention.value_length is 16, key_length 32"),
        ("rope.scaling.type", "mystery", "'mystery'.*none, linear and yarn"),
    ],
)
def test_unknown_settings_are_refused_by_name(llama, key: str, value: object, message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        llama(**{key: value}).build()


def test_a_tensor_nobody_asked_for_is_refused(llama) -> None:
    file = llama()
    file.shapes["blk.0.attn_q_norm.weight"] = (32,)
    with pytest.raises(UnsupportedError, match=r"blk\.0\.attn_q_norm\.weight.*llama architecture"):
        file.build()


def with_factors(file, last_half: float):
    file.shapes["rope_freqs.weight"] = (16,)
    w = file.weights()
    w["rope_freqs.weight"] = np.repeat(np.float32([1.0, last_half]), 8)
    return file.build(), w


def test_rope_factors_matter_at_long_range(llama) -> None:
    plain, w = llama().build(), llama().weights()
    ones, w1 = with_factors(llama(), 1.0)
    eights, w8 = with_factors(llama(), 8.0)
    w1 |= w
    w8 |= w
    ids = [i * 7 % 29 for i in range(100)]
    want = reference.run(plain, w, ids, [99])
    assert np.array_equal(reference.run(ones, w1, ids, [99]), want)
    assert np.abs(reference.run(eights, w8, ids, [99]) - want).max() > 1e-3


def test_scaling_reaches_the_rope_op(llama) -> None:
    def rope_of(**changes: object):
        return next(op.attributes["rope"] for op in llama(**changes).build().ops if op.name == "rope")

    assert rope_of().scaling == "none" and rope_of().pairs == "adjacent" and rope_of().dim == 32
    linear = rope_of(**{"rope.scaling.type": "linear", "rope.scaling.factor": 4.0})
    assert (linear.scaling, linear.factor) == ("linear", 4.0)
    assert rope_of(**{"rope.scale_linear": 2.0}).factor == 2.0
    assert rope_of(**{"rope.scaling.type": "none", "rope.scaling.factor": 4.0}).factor == 1.0
    yarn = rope_of(**{"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0})
    assert (yarn.scaling, yarn.factor, yarn.original_context) == ("yarn", 4.0, 128)
    assert rope_of(**{"rope.dimension_count": 16}).dim == 16
    original = {"rope.scaling.type": "yarn", "rope.scaling.original_context_length": 64}
    assert rope_of(**original).original_context == 64
    with pytest.raises(ModelFileError, match="original_context_length"):
        rope_of(**{"rope.scaling.type": "yarn", "context_length": None})
