"""The plan: adds melt, values are quantised by their makers, buffers are shared; and on random programs nothing breaks."""

from __future__ import annotations

import cpu_kernels as cpu
import cpu_programs as programs
import numpy as np
import pytest
from random_programs import VOCAB, make_random

from edgellm.kernels import reference
from edgellm.kernels.cpu import slots
from edgellm.kernels.cpu.plan import Plan, Step, make_plan
from edgellm.kernels.ops import Builder, CacheLayer, Program, Rope, Value


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
