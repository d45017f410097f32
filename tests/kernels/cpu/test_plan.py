"""The plan: adds melt, values are quantised by their makers, buffers are shared; and on random programs nothing breaks."""

from __future__ import annotations

import random

import cpu_kernels as cpu
import cpu_programs as programs
import numpy as np
import pytest

from edgellm.kernels import reference
from edgellm.kernels.cpu import slots
from edgellm.kernels.cpu.plan import Plan, Step, make_plan
from edgellm.kernels.ops import ACTIVATIONS, Builder, CacheLayer, Program, Rope, Value

VOCAB = 50


def steps_of(plan: Plan) -> list[str]:
    how = {slots.STORE: "", slots.ADD: "+", slots.QUANTISE: "8"}
    return [step.name + how[step.how] for step in [*plan.body, *plan.head]]


def make_block(b: Builder, x: Value, prefix: str = "") -> Value:
    """A llama block with one head."""
    h = b.rms_norm(x, "n", 1e-5)
    q, k, v = (b.linear(h, name, 64) for name in ("q", "k", "v"))
    q, k = (b.rope(y, 1, Rope(64, 1e4, "halves")) for y in (q, k))
    x = b.add(x, b.linear(b.attention(q, k, v, 1, CacheLayer(1, 64), 0.1), "o", 64))
    h = b.rms_norm(x, "n", 1e-5)
    return b.add(x, b.linear(b.gated(b.linear(h, "gate", 96), b.linear(h, "up", 96), "silu"), "down", 64))


def make_llama(layers: int) -> Program:
    b = Builder()
    x = b.embed("table", 64)
    for _ in range(layers):
        x = make_block(b, x)
    return b.finish(b.linear(b.rms_norm(b.logit_rows(x), "n", 1e-5), "out", VOCAB))


def test_a_block_of_int8_matrices() -> None:
    plan = make_plan(make_llama(1), lambda name: True)
    attention = ["rms_norm8", "linear", "linear", "linear", "rope", "rope", "attention8", "linear+"]
    ffn = ["rms_norm8", "linear", "linear", "gated8", "linear+"]
    assert steps_of(plan) == ["embed", *attention, *ffn, "logit_rows", "rms_norm8", "linear"]
    assert plan.body[-1].out is plan.body[0].out, "the residual stays where it is"


def test_a_block_of_float_matrices() -> None:
    plan = make_plan(make_llama(1), lambda name: False)
    assert not any(step.how == slots.QUANTISE for step in [*plan.body, *plan.head])


def test_a_value_that_both_kinds_read_is_kept_and_quantised() -> None:
    plan = make_plan(make_llama(1), lambda name: name not in ("k", "up"))
    assert steps_of(plan)[1:4] == ["rms_norm", "quantise8", "linear"]


def test_buffers_do_not_grow_with_layers() -> None:
    sizes = {n: len(make_plan(make_llama(n), lambda name: True).buffers) for n in (1, 2, 10)}
    assert sizes[2] == sizes[10] <= sizes[1] + 2 and sizes[10] < 14


def test_a_norm_melts_and_an_add_of_what_is_read_later_does_not() -> None:
    def plan_of(reads_x_later: bool) -> list[str]:
        b = Builder()
        x = b.embed("t", 64)
        y = b.add(x, b.rms_norm(b.linear(x, "a", 64), "n", 1e-5))
        if reads_x_later:
            y = b.add(b.linear(x, "b", 64, bias="bb"), y)
        return steps_of(make_plan(b.finish(b.linear(b.logit_rows(y), "out", VOCAB)), lambda name: True))

    assert "rms_norm+" in plan_of(False) and "add" not in plan_of(False)
    assert plan_of(True).count("add") == 2 and "rms_norm+" not in plan_of(True)


def test_rope_works_in_place_where_nothing_else_reads_what_it_turns() -> None:
    b, rope = Builder(), Rope(64, 1e4, "halves")
    x = b.embed("t", 64)
    both, alone = b.linear(x, "a", 64), b.linear(x, "b", 64)
    turned = [b.rope(both, 1, rope), b.rope(both, 1, rope, 5), b.rope(alone, 1, rope)]
    x = b.add(b.add(x, turned[0]), b.add(turned[1], turned[2]))
    plan = make_plan(b.finish(b.linear(b.logit_rows(x), "out", VOCAB)), lambda name: True)
    steps = [step for step in plan.body if step.name == "rope"]
    assert [step.out in step.inputs for step in steps] == [False, False, True]
    assert len({step.out.index for step in steps}) == 3


def test_a_bias_keeps_the_add() -> None:
    b = Builder()
    x = b.embed("t", 64)
    x = b.add(x, b.linear(x, "a", 64, bias="bb"))
    assert "add" in steps_of(make_plan(b.finish(b.linear(b.logit_rows(x), "out", VOCAB)), lambda name: True))


def test_no_buffer_is_written_while_its_value_is_needed() -> None:
    """Replay plans symbolically: what a step reads must be what the program says."""
    for seed in range(60):
        program, source = make_random(seed)
        int8 = {name for name, t in source.tensors.items() if t.type_name in cpu.INT8_FORMATS}
        plan = make_plan(program, int8.__contains__)
        replay(plan, program)


def replay(plan: Plan, program: Program) -> None:
    sums = {op.output.index: {v.index for v in op.inputs} for op in program.ops if op.name == "add"}
    holds: dict[int, set[int]] = {}  # buffer -> the values that it holds now: one, or all that are equal
    for step in [*plan.body, *plan.head]:
        for value, buffer in zip(step.op.inputs, step.inputs, strict=True):
            assert value.index in holds[buffer.index], f"{step.name} reads value {value.index} from a buffer without it"
        assert not writes_what_it_reads(step), step.op
        before, made = holds.get(step.out.index, set()), step.op.output.index
        if step.how == slots.ADD:
            holds[step.out.index] = {s for s, parts in sums.items() if made in parts and parts & before}
            assert len(holds[step.out.index]) == 1
        else:
            holds[step.out.index] = {made}


def writes_what_it_reads(step: Step) -> bool:
    """Only ops that finish a row before they write it may work in place; a matrix reads rows that other threads write."""
    return step.name in ("linear", "attention", "columns", "logit_rows") and step.out in step.inputs


# ---- random programs ----
def make_random(seed: int) -> tuple[Program, programs.MemorySource]:
    """Any ops on any earlier values, in widths of every kind: what no architecture does, and some do."""
    rng, numbers, source, b = random.Random(seed), np.random.default_rng(seed), programs.MemorySource(), Builder()
    widths = rng.sample([32, 40, 64, 96, 256], 2)
    values: list[Value] = []
    kept: list[tuple[Value, int, int]] = []  # what attention ops gave, their kv heads and how wide these are

    def weight(rows: int, columns: int) -> str:
        fit = [f for f in ("F32", "F16", "Q8_0", "Q5_0", "Q4_1") if f in ("F32", "F16") or columns % 32 == 0]
        w = (numbers.standard_normal((rows, columns)) / columns**0.5).astype(np.float32)
        return source.put(f"w{len(source.tensors)}", w, rng.choice(fit))

    def vector(size: int) -> str:
        return source.put(f"v{len(source.tensors)}", (1 + 0.2 * numbers.standard_normal(size)).astype(np.float32))

    def pick(width: int | None = None) -> Value:
        return rng.choice([v for v in values if width is None or v.width == width])

    def grow() -> Value:
        kinds = ["linear", "linear", "norm", "add", "add", "gated", "add_linear", "attention", "again", "rows", "rows"]
        kind, x = rng.choice(kinds), pick()
        if kind == "linear":
            width = rng.choice(widths)
            start = rng.choice([0, 0, 8, 40])  # rows of a larger matrix
            rows, bias = start + width + rng.choice([0, 5]), rng.random() < 0.3
            return b.linear(x, weight(rows, x.width), width, vector(rows) if bias else None, start)
        if kind == "norm":
            groups = rng.choice([g for g in (1, 1, 2, 4) if x.width % g == 0])
            return b.rms_norm(x, rng.choice([None, vector(x.width // groups)]), 1e-5, groups)
        if kind == "add":
            return b.add(x, pick(x.width))
        if kind == "gated":
            return b.gated(x, pick(x.width), rng.choice(ACTIVATIONS))
        if kind == "rows":
            return by_rows(x)
        if kind == "add_linear":
            y = b.linear(x, weight(x.width, x.width), x.width)
            return b.add(*rng.sample([x, y], 2))
        return again(x) if kind == "again" else attend(x)

    def by_rows(x: Value) -> Value:
        kind = rng.choice(["layer_norm", "activate", "multiply", "scale", "softcap", "columns"])
        if kind == "layer_norm":
            groups = rng.choice([g for g in (1, 1, 2, 4) if x.width % g == 0])
            size = x.width // groups
            return b.layer_norm(x, vector(size), vector(size) if rng.random() < 0.5 else None, 1e-5, groups)
        if kind == "activate":
            return b.activate(x, rng.choice(ACTIVATIONS))
        if kind == "multiply":
            return b.multiply(x, rng.choice([pick(x.width), b.activate(b.linear(x, weight(1, x.width), 1), "sigmoid")]))
        if kind == "columns":
            width = rng.choice([w for w in (8, *widths) if w <= x.width])
            return b.columns(x, 8 * rng.randint(0, (x.width - width) // 8), width)
        return b.scale(x, 0.7, rng.choice([None, vector(1)])) if kind == "scale" else b.softcap(x, 3.0)

    def attend(x: Value) -> Value:
        kv, shared, dim = rng.choice([1, 2]), rng.choice([1, 3]), rng.choice([8, 32, 48])
        layer = CacheLayer(kv, dim, rng.choice([None, 5, 70]))
        rope = Rope(rng.choice([8, dim]), 1e4, rng.choice(["adjacent", "halves"]))
        q, k, v = (b.linear(x, weight(n * dim, x.width), n * dim) for n in (kv * shared, kv, kv))
        if rng.random() < 0.5:  # another reads what is turned
            values.append(b.rope(q, kv * shared, rope, rng.choice([None, 0, 9, 70])))
        q, k = b.rope(q, kv * shared, rope), b.rope(k, kv, rope)
        y = b.attention(q, k, v, kv * shared, layer, dim**-0.5)
        kept.append((y, kv, dim))
        return y

    def again(x: Value) -> Value:
        first, kv, dim = rng.choice(kept)
        heads = kv * rng.choice([1, 2])
        return b.attention_again(b.linear(x, weight(heads * dim, x.width), heads * dim), first, heads, dim**-0.5)

    values.append(b.embed(weight(VOCAB, widths[0]), widths[0], 4.0))
    values.append(attend(values[0]))
    for _ in range(rng.randint(3, 14)):
        values.append(grow())
    x = values[-1]
    for _ in range(rng.randint(0, 3)):
        x = b.add(x, pick(x.width))
    values = [b.logit_rows(b.rms_norm(x, vector(x.width), 1e-5))]
    for _ in range(rng.randint(0, 3)):
        kind, x = rng.choice(["norm", "residual", "add"]), values[-1]
        if kind == "norm":
            values.append(b.rms_norm(x, vector(x.width), 1e-5))
        else:
            y = b.linear(x, weight(x.width, x.width), x.width) if kind == "residual" else values[0]
            values.append(b.add(x, y))
    return b.finish(b.linear(values[-1], weight(VOCAB, x.width), VOCAB)), source


@pytest.mark.parametrize("seed", range(40))
def test_random_programs(seed: int) -> None:
    program, source = make_random(seed)
    ids = np.random.default_rng(seed).integers(0, VOCAB, 75).astype(np.int32)
    with programs.Machine(program, source, 128, num_threads=2) as machine:
        got = machine.logits(ids)[0]
        for chunk in (1, 10):
            assert np.array_equal(machine.logits(ids, chunk=chunk)[0], got)
    with programs.Machine(program, source, 128, num_threads=3, packed=False) as machine:
        assert np.array_equal(machine.logits(ids)[0], got)
    weights = programs.dequantised(program, source)
    with programs.rounding_as_the_cpu(source, weights):
        want = reference.run(program, weights, ids)
    programs.assert_close(got, want, usual=0.02, most=0.1)
