"""The gated delta rule and Mamba 2 on the CPU: the reference's numbers, and the same bits for any cut of the tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from cpu_kernels import LEVEL_NAMES, call, make_copy, make_rows
from numpy.typing import NDArray

from edgellm.kernels import reference
from edgellm.kernels.cpu import slots
from edgellm.kernels.cpu.memory import address, aligned
from edgellm.kernels.ops import Builder, Op

Floats = NDArray[np.float32]
TOKENS = 11


@dataclass(frozen=True)
class Layer:
    """An op with its inputs f32[T, width] and its weights, and what the reference makes of them."""

    op: Op
    inputs: list[Floats]
    weights: dict[str, Floats]
    state_width: int
    expected: Floats


def make_layer(kind: str, **sizes: Any) -> Layer:
    """A layer of random numbers."""
    random, b = np.random.default_rng(5), Builder()
    normal = lambda *shape: random.standard_normal(shape).astype(np.float32)  # noqa: E731
    heads = sizes.get("num_value_heads", sizes.get("num_heads"))
    weights = {"a": -np.exp(normal(heads)), "d": normal(heads), "bias": normal(heads)}
    if kind == "mamba2":
        width = heads * sizes["head_dim"] + 2 * sizes["num_groups"] * sizes["state_size"]
        inputs = [normal(TOKENS, width), normal(TOKENS, heads)]
        values = [b.embed(f"x{i}", x.shape[1]) for i, x in enumerate(inputs)]
        y = b.mamba2(values[0], values[1], "a", "d", "bias", **sizes)
    else:
        width = 2 * sizes["num_key_heads"] * sizes["key_dim"] + heads * sizes["value_dim"]
        inputs = [normal(TOKENS, width)] + [normal(TOKENS, heads) for _ in range(2)]
        if kind == "one matrix":
            inputs[1:] = [np.concatenate(inputs[1:], axis=1)]
        values = [b.embed(f"x{i}", x.shape[1]) for i, x in enumerate(inputs)]
        y = b.gated_delta(values[0], values[1], values[2] if values[2:] else None, "a", "bias", **sizes)
    program = b.finish(y)
    ids = np.arange(TOKENS)
    expected = reference.run(program, weights | {f"x{i}": x for i, x in enumerate(inputs)}, ids)
    return Layer(program.ops[-1], inputs, weights, program.state_layers[0].width, expected)


DELTA = {"num_key_heads": 2, "num_value_heads": 4, "key_dim": 64, "value_dim": 64}
CASES: Mapping[str, tuple[str, dict[str, Any]]] = {
    "delta": ("two matrices", DELTA | {"adjacent": False}),
    "delta, heads side by side": ("one matrix", DELTA | {"adjacent": True}),
    "delta, odd sizes": ("two matrices", DELTA | {"key_dim": 48, "value_dim": 40, "adjacent": False}),
    "mamba2": ("mamba2", {"num_heads": 4, "head_dim": 64, "state_size": 32, "num_groups": 2}),
    "mamba2, odd sizes": ("mamba2", {"num_heads": 6, "head_dim": 24, "state_size": 16, "num_groups": 3}),
}


def arguments_of(layer: Layer, rows: Sequence[Floats], weights: Mapping[str, Floats], out: Floats) -> list[int]:
    """A record's arguments, as the kernels' docstrings list them; the layer begins 64 bytes into a record."""
    a, x = layer.op.attributes, [(address(r), r.strides[0]) for r in rows]
    vectors = [address(weights[name]) for name in layer.op.weights]
    emit = [64, address(out), out.strides[0], slots.STORE, 1, 1]
    if layer.op.name == "mamba2":
        return [*x[0], *x[1], *vectors, a["num_heads"], a["head_dim"], a["state_size"], a["num_groups"], *emit]
    heads, keys = a["num_value_heads"], a["num_key_heads"]
    r = heads // keys
    if len(x) == 3:
        gates = [x[1][0], x[2][0], x[1][1], x[2][1], heads, 0]
    else:
        gates = [x[1][0], x[1][0] + 4 * r, x[1][1], x[1][1], r, 2 * r]
    return [*x[0], *gates, *vectors, keys, heads, a["key_dim"], a["value_dim"], int(a["adjacent"]), *emit]


def run(
    level: str, layer: Layer, records: NDArray[np.uint8], runs: Sequence[tuple[int, int, int]], saves: dict[int, int]
) -> Floats:
    """Run all chunks. runs: (first token, tokens, record to read); saves: token -> record to write."""
    rows, out = [make_rows(x, np.nan) for x in layer.inputs], make_rows(np.zeros_like(layer.expected))
    weights = {name: make_copy(w) for name, w in layer.weights.items()}
    words, saved = np.zeros((len(runs), slots.RUN_WORDS), np.int64), np.zeros(TOKENS, np.int64)
    for i, (first, count, read) in enumerate(runs):
        words[i] = first, count, address(records[read])
    for token, record in saves.items():
        saved[token] = address(records[record])
    a = layer.op.attributes
    heads = a.get("num_value_heads", a.get("num_heads"))
    chunks = len(runs) * heads * -(-a.get("value_dim", a.get("head_dim")) // 32)
    context = {slots.RUNS: address(words), slots.SAVES: address(saved)}
    call(level, layer.op.name, arguments_of(layer, rows, weights, out), range(chunks), context)
    return out[:, : layer.expected.shape[1]].copy()


def make_records(layer: Layer) -> NDArray[np.uint8]:
    """Six records; the first holds zeros, the others what must not matter."""
    records = aligned(6 * (64 + 4 * layer.state_width)).reshape(6, -1)
    records[:], records[0] = 0xFF, 0
    return records


@pytest.mark.parametrize("level", LEVEL_NAMES)
@pytest.mark.parametrize("case", CASES)
def test_the_kernels_say_what_the_reference_says(case: str, level: str) -> None:
    layer = make_layer(CASES[case][0], **CASES[case][1])
    found = run(level, layer, make_records(layer), [(0, TOKENS, 0)], {TOKENS - 1: 1})
    assert np.abs(found - layer.expected).max() <= 2e-6 * np.abs(layer.expected).max()


@pytest.mark.parametrize("case", CASES)
def test_the_bits_are_the_same_for_any_cut_and_every_record_that_is_written(case: str) -> None:
    layer, level = make_layer(CASES[case][0], **CASES[case][1]), LEVEL_NAMES[-1]
    records, last = make_records(layer), TOKENS - 1
    whole = run(level, layer, records, [(0, TOKENS, 0)], {last: 1})
    saving = run(level, layer, records, [(0, TOKENS, 0)], {2: 2, 3: 3, last: 4})
    assert saving.tobytes() == whole.tobytes()
    assert records[4, 64:].tobytes() == records[1, 64:].tobytes()
    rest = run(level, layer, records, [(3, 1, 2), (4, TOKENS - 4, 3)], {3: 4, last: 5})
    assert rest[3:].tobytes() == whole[3:].tobytes()
    assert records[4, 64:].tobytes() == records[3, 64:].tobytes()
    assert records[5, 64:].tobytes() == records[1, 64:].tobytes()


@pytest.mark.parametrize("case", CASES)
def test_every_level_gives_the_same_bits(case: str) -> None:
    layer = make_layer(CASES[case][0], **CASES[case][1])
    found = {run(n, layer, make_records(layer), [(0, TOKENS, 0)], {TOKENS - 1: 1}).tobytes() for n in LEVEL_NAMES}
    assert len(found) == 1
