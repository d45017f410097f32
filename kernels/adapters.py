"""Low-rank adapters beside a program's matrices (LoRA: Hu et al. 2021, arXiv:2106.09685), which stay as they are.

Where an adapter changes the matrix W by B A, every op that reads W is followed by `y + B (scale * (A x))`: two small
`linear` ops with an `adapter_scale` between them, which tells the sequences of a batch apart. Several parts of one matrix
(`linear`'s start) share A x. Knows no file and no backend. Next hop: `ops.py` for what the ops mean.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace

from .ops import Op, Program, Value


@dataclass(frozen=True, slots=True)
class Delta:
    """What an adapter adds to one matrix. a: name of f32[rank, K] (of a table's: f32[V, rank]); b: of f32[N, rank].

    factor: what the adapter's own rule makes of B A, alpha / rank.
    """

    adapter: int
    weight: str
    a: str
    b: str
    rank: int
    factor: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptedProgram(Program):
    """A program with adapters beside its matrices. base: the one without."""

    base: Program | None = field(default=None)

    @property
    def hidden(self) -> Value:
        """The value that the program without adapters has there."""
        assert self.base is not None
        return self.base.hidden


@dataclass(frozen=True, slots=True)
class Adapters:
    """All that were loaded for a model."""

    deltas: tuple[Delta, ...]

    def beside(self, program: Program, active: Collection[int] | None = None) -> AdaptedProgram:
        """The program with some adapters, by number; None: with all. Values keep their numbers, the sums take their place."""
        found: defaultdict[str, list[Delta]] = defaultdict(list)
        for delta in self.deltas:
            if active is None or delta.adapter in active:
                found[delta.weight].append(delta)
        numbers = itertools.count(1 + max(op.output.index for op in program.ops))
        scaled: dict[tuple[Delta, int], Value] = {}
        ops: list[Op] = []
        for op in program.ops:
            deltas = found.get(op.weights[0], []) if op.name in ("linear", "embed") else []
            ops += _adapt(op, deltas, numbers, scaled)
        fields = {name: getattr(program, name) for name in Program.__dataclass_fields__ if name != "ops"}
        return AdaptedProgram(ops=tuple(ops), base=program, **fields)

    def matrices_alone(self, program: Program) -> Program:
        """Only the ops that read matrices of adapters: not to be run, but to ask what is to be loaded."""
        names = {name for delta in self.deltas for name in (delta.a, delta.b)}
        adapted = self.beside(program)
        return replace(adapted, ops=tuple(op for op in adapted.ops if names & set(op.weights)))


def _adapt(op: Op, deltas: list[Delta], numbers: Iterator[int], scaled: dict[tuple[Delta, int], Value]) -> Iterator[Op]:
    """The op, and what each adapter adds to its result; the last sum has the number that the op's output had."""
    if not deltas:
        yield op
        return
    result = Value(next(numbers), op.output.width)
    yield replace(op, output=result)
    for delta in deltas:
        key = delta, op.inputs[0].index if op.inputs else -1
        if key not in scaled:
            x = Value(next(numbers), delta.rank)
            scaled[key] = Value(next(numbers), delta.rank)
            yield _first_half(op, delta, x)
            yield Op("adapter_scale", (x,), scaled[key], (), {"adapter": delta.adapter, "factor": delta.factor})
        added = Value(next(numbers), op.output.width)
        start = op.attributes.get("start", 0)
        yield Op("linear", (scaled[key],), added, (delta.b,), {"bias": False, "start": start})
        before, result = result, op.output if delta is deltas[-1] else Value(next(numbers), op.output.width)
        yield Op("add", (before, added), result)


def _first_half(op: Op, delta: Delta, x: Value) -> Op:
    if op.name == "embed":  # A's rows belong to the tokens, as the table's do
        return replace(op, output=x, weights=(delta.a,))
    return Op("linear", op.inputs, x, (delta.a,), {"bias": False, "start": 0})
