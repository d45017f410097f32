"""The oracle's ops one by one, each against its definition written in another way."""

from __future__ import annotations

import math

import numpy as np
import pytest

from edgellm.kernels import reference
from edgellm.kernels.ops import Builder, CacheLayer, Rope

RNG = np.random.default_rng(0)


def floats(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def test_embed_scales_rows_in_float32() -> None:
    table = floats(5, 3)
    got = reference.embed(np.array([4, 0, 4]), table, 640**0.5)
    assert got.dtype == np.float32 and np.array_equal(got, table[[4, 0, 4]] * np.float32(640**0.5))


def test_rms_norm_of_groups() -> None:
    x, weight = floats(2, 6), floats(3)
    got = reference.rms_norm(x, weight, 1e-2, groups=2)
    for t in range(2):
        for g in range(2):
            part = [float(v) for v in x[t, g * 3 : g * 3 + 3]]
            size = math.sqrt(sum(v * v for v in part) / 3 + 1e-2)
            np.testing.assert_allclose(got[t, g * 3 : g * 3 + 3], np.array(part) / size * weight, rtol=1e-6)


def test_linear_with_and_without_bias() -> None:
    x, weight, bias = floats(3, 4), floats(5, 4), floats(5)
    want = [[sum(float(a) * float(b) for a, b in zip(row, w, strict=True)) for w in weight] for row in x]
    np.testing.assert_allclose(reference.linear(x, weight), want, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(reference.linear(x, weight, bias), np.array(want) + bias, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("pairs", ["adjacent", "halves"])
def test_rope_turns_leading_pairs_of_each_head(pairs: str) -> None:
    rope = Rope(dim=4, base=100.0, pairs=pairs)
    x = floats(3, 12)
    got = reference.rope(x, 2, rope, np.array([0, 1, 7])).reshape(3, 2, 6)
    heads = x.reshape(3, 2, 6)
    assert np.array_equal(got[0], heads[0]) and np.array_equal(got[..., 4:], heads[..., 4:])
    for i in range(2):
        left, right = (2 * i, 2 * i + 1) if pairs == "adjacent" else (i, i + 2)
        for row, position in enumerate([0, 1, 7]):
            z = (heads[row, :, left] + 1j * heads[row, :, right]) * np.exp(1j * position * 100.0 ** (-i / 2))
            np.testing.assert_allclose(got[row, :, left] + 1j * got[row, :, right], z, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("window", [None, 1, 3, 7, 8, 100])
def test_attention_reaches_exactly_the_window(window: int | None) -> None:
    tokens, layer = 8, CacheLayer(num_kv_heads=2, head_dim=4, window=window)
    q, k, v = floats(tokens, 16), floats(tokens, 8), floats(tokens, 8)
    got = reference.attention(q, k, v, 4, layer, 0.5).reshape(tokens, 4, 4)
    for p in range(tokens):
        first = 0 if window is None else max(0, p - window + 1)
        for head in range(4):
            group = slice(head // 2 * 4, head // 2 * 4 + 4)
            mine = q[p, head * 4 : head * 4 + 4].astype(np.float64)
            weights = [math.exp(0.5 * float(mine @ k[s, group])) for s in range(first, p + 1)]
            want = sum(w * v[s, group] for w, s in zip(weights, range(first, p + 1), strict=True)) / sum(weights)
            np.testing.assert_allclose(got[p, head], want, rtol=1e-5, atol=1e-6)


def test_a_window_of_w_counts_the_current_token() -> None:
    zeros = np.zeros((6, 4), np.float32)
    got = reference.attention(
        zeros, zeros, np.tile(np.arange(6, dtype=np.float32)[:, None], 4), 1, CacheLayer(1, 4, 3), 1
    )
    assert got[5, 0] == (3 + 4 + 5) / 3 and got[1, 0] == 0.5


def test_activations() -> None:
    x = np.array([[-1e4, -100.0, -1.0, -0.0, 0.5, 30.0, 1e15]], np.float32)
    up = np.full_like(x, 2.0)
    silu = [[-0.0, -0.0, -1 / (1 + math.e), 0.0, 0.5 / (1 + math.exp(-0.5)), 30.0, 1e15]]
    np.testing.assert_allclose(reference.gated(x, up, "silu"), 2 * np.array(silu), rtol=1e-6, atol=1e-30)
    gelu = [v / 2 * (1 + math.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v**3))) for v in x[0].astype(float)]
    np.testing.assert_allclose(reference.gated(x, up, "gelu"), [2 * np.array(gelu)], rtol=1e-5, atol=1e-30)


def test_run_walks_a_program_and_frees_dead_values() -> None:
    builder = Builder()
    x = builder.embed("table", 4)
    y = builder.add(x, x)
    program = builder.finish(builder.linear(builder.logit_rows(builder.add(y, x)), "out", 3, bias="bias"))
    weights = {"table": floats(7, 4), "out": floats(3, 4), "bias": floats(3)}
    got = reference.run(program, weights, [6, 2, 2], [1])
    np.testing.assert_allclose(got, 3 * weights["table"][[2]] @ weights["out"].T + weights["bias"], rtol=1e-5)


def test_later_tokens_change_nothing_earlier() -> None:
    q, k, v = floats(9, 8), floats(9, 8), floats(9, 8)
    layer = CacheLayer(1, 8)
    short = reference.attention(q[:5], k[:5], v[:5], 1, layer, 0.3)
    np.testing.assert_allclose(reference.attention(q, k, v, 1, layer, 0.3)[:5], short, rtol=1e-5, atol=1e-6)
