"""A window by choice: which layers change, that nothing else does, and that far sinks are met as Xiao et al. meet them."""

from __future__ import annotations

import numpy as np
import pytest

from edgellm.kernels import reference
from edgellm.kernels.ops import Builder, CacheLayer, Program, Rope, Value
from edgellm.kernels.windowed import reach, with_window

VOCAB, HEADS, KV, DIM = 30, 4, 2, 16
ROPE = Rope(DIM, 1e3, "halves")


def make_program(*windows: int | None, rope: Rope | None = ROPE) -> Program:
    """A layer of attention per window; without `rope`, positions do not matter to q and k."""
    b = Builder()
    x = b.embed("table", HEADS * DIM)

    def turned(x: Value, heads: int) -> Value:
        return x if rope is None else b.rope(x, heads, rope)

    for i, window in enumerate(windows):
        q, k, v = (b.linear(x, f"{name}{i}", n * DIM) for name, n in (("q", HEADS), ("k", KV), ("v", KV)))
        layer = CacheLayer(KV, DIM, window)
        x = b.add(x, b.attention(turned(q, HEADS), turned(k, KV), v, HEADS, layer, DIM**-0.5))
    return b.finish(b.linear(b.logit_rows(x), "out", VOCAB))


def make_weights(program: Program, seed: int = 0) -> dict[str, np.ndarray]:
    rng, weights = np.random.default_rng(seed), {"table": np.empty((VOCAB, HEADS * DIM))}
    weights |= {
        op.weights[0]: np.empty((op.output.width, op.inputs[0].width)) for op in program.ops if op.name == "linear"
    }
    return {name: (rng.standard_normal(w.shape) / 3).astype(np.float32) for name, w in weights.items()}


def make_ids(count: int) -> np.ndarray:
    return np.random.default_rng(count).integers(0, VOCAB, count)


@pytest.mark.parametrize("sinks", [0, 1, 5])
@pytest.mark.parametrize("window", [1, 6, 16])
@pytest.mark.parametrize("rope", [ROPE, None])
def test_nothing_changes_until_a_sequence_is_longer_than_the_window(window: int, sinks: int, rope: Rope | None) -> None:
    program = make_program(None, min(window, 4), None, rope=rope)
    limited, weights = with_window(program, window, sinks), make_weights(program)
    ids = make_ids(40)
    before, after = reference.run(program, weights, ids), reference.run(limited, weights, ids)
    assert np.array_equal(before[:window], after[:window])
    np.testing.assert_allclose(before[: window + sinks], after[: window + sinks], rtol=1e-4, atol=1e-5)
    assert not np.allclose(before[window + sinks :], after[window + sinks :], atol=1e-2)


def test_only_layers_that_see_more_than_the_window_get_it() -> None:
    program = make_program(None, 4, 8, 9, 40)
    limited = with_window(program, 8, 3)
    assert [(layer.window, layer.num_sink_tokens) for layer in limited.cache_layers] == [
        (8, 3), (4, 0), (8, 0), (8, 1), (8, 3)
    ]  # fmt: skip
    assert [len(op.inputs) for op in limited.ops if op.name == "attention"] == [4, 3, 3, 4, 4]
    assert [op.attributes["last_position"] for op in limited.ops if op.name == "rope"] == [
        None, 10, None, None, None, None, None, None, 8, None, None, 10, None
    ]  # fmt: skip
    assert len(limited.ops) == len(program.ops) + 3
    outputs = [op.output.index for op in limited.ops]
    assert len(set(outputs)) == len(outputs) and limited.output == program.output
    assert with_window(make_program(4, 8), 8, 3) == make_program(4, 8), "no layer sees more"


def test_without_sinks_or_without_rope_there_is_no_second_query() -> None:
    for program, sinks in ((make_program(None), 0), (make_program(None, rope=None), 3)):
        limited = with_window(program, 8, sinks)
        assert [op.name for op in limited.ops] == [op.name for op in program.ops]
        assert limited.cache_layers == (CacheLayer(KV, DIM, 8, sinks),)


def test_reach_is_that_of_the_layer_that_sees_most() -> None:
    layers = make_program(4, 30).cache_layers
    assert reach(layers) == 30 and reach([*layers, CacheLayer(1, 8)]) is None
    assert reach(with_window(make_program(None, 4), 8, 3).cache_layers) == 11


@pytest.mark.parametrize("pairs", ["halves", "adjacent"])
@pytest.mark.parametrize(("window", "sinks"), [(5, 3), (1, 1), (12, 4)])
def test_a_far_sink_is_where_it_would_lie_right_before_the_window(window: int, sinks: int, pairs: str) -> None:
    """Written as in the paper: what is kept is numbered anew from 0, and keys turn by these numbers."""
    rope = Rope(DIM, 1e3, pairs)
    program = make_program(None, rope=rope)
    weights, ids = make_weights(program), make_ids(40)
    got = reference.run(with_window(program, window, sinks), weights, ids)
    x = weights["table"][ids]
    q, k, v = (x @ weights[name].T for name in ("q0", "k0", "v0"))
    for p in range(len(ids)):
        kept = [i for i in range(p + 1) if i < sinks or i > p - window]
        numbers = np.arange(len(kept))
        keys = reference.rope(k[kept], KV, rope, numbers).reshape(len(kept), KV, DIM)
        query = reference.rope(q[p : p + 1], HEADS, rope, numbers[-1:]).reshape(HEADS, DIM)
        heads = []
        for h in range(HEADS):
            scores = keys[:, h // (HEADS // KV)] @ query[h] * DIM**-0.5
            share = np.exp(scores - scores.max())
            heads.append(share / share.sum() @ v[kept].reshape(len(kept), KV, DIM)[:, h // (HEADS // KV)])
        want = (x[p] + np.concatenate(heads)) @ weights["out"].T
        np.testing.assert_allclose(got[p], want, rtol=1e-3, atol=1e-4)
