"""Decide, before any address is known, how a program runs on the CPU: which ops melt together and where values live.

- `add(x, y)` disappears where the op that makes y can add into x's buffer itself.
- A value that only integer matrix kernels read is quantised by the op that makes it.
- Buffers are reused once nothing needs their value.
Next hop: `lower.py` turns the steps into records.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from ..ops import MULTIPLIES, Op, Program, Value
from .slots import ADD, QUANTISE, STORE

_SEND_ROWS = frozenset(
    ("rms_norm", "layer_norm", "gated", "activate", "multiply", "scale", "softcap", "columns", "experts")
)
"""Ops that can add their rows to what is there, or quantise them: each value is read before it is written."""
_IN_PLACE = frozenset(("rope", "activate", "multiply", "scale", "softcap"))
"""Ops that can write over their first input."""


@dataclass(frozen=True, slots=True)
class Buffer:
    """Room for one value: f32 rows, or activation tiles if `quantised`. `width` in values; `head`: only logit rows.

    copies: rows of a token; more than one between the matrices of experts.
    """

    index: int
    width: int
    quantised: bool
    head: bool
    copies: int = 1


@dataclass(frozen=True, slots=True)
class Step:
    """One op with its buffers. how: STORE, ADD (into what `out` holds) or QUANTISE. name "quantise" exists only here.

    scratch: what lies between its kernels. Experts: x sorted, gate, up, gated, down.
    """

    name: str
    op: Op
    inputs: tuple[Buffer, ...]
    out: Buffer
    how: int
    scratch: tuple[Buffer, ...] = ()


@dataclass
class Plan:
    """Steps of the body (all tokens) and of the head (rows whose logits are wanted), and all buffers."""

    body: list[Step] = field(default_factory=list)
    head: list[Step] = field(default_factory=list)
    buffers: list[Buffer] = field(default_factory=list)


def make_plan(program: Program, reads_int8: Callable[[str], bool]) -> Plan:
    """Plan a program; reads_int8(weight name) says whether that matrix multiplies with quantised activations."""
    return _Planner(program, reads_int8).run()


def add_hidden(plan: Plan, program: Program) -> list[Step]:
    """-> the steps of a head that ends in the hidden states as float32, with room for those; none if no step is theirs alone."""
    for i, step in enumerate(plan.head):
        if step.op.output == program.hidden and step.name != "quantise":
            if step.how == QUANTISE:
                out = Buffer(len(plan.buffers), program.hidden.width, False, True)
                plan.buffers.append(out)
                step = replace(step, out=out, how=STORE)
            return [*plan.head[:i], step]
    return []


def _without_kept(op: Op) -> Op:
    """Attention over what an earlier op keeps reads it from the cache: nobody need hold k and v for it."""
    return replace(op, inputs=(op.inputs[0], *op.inputs[3:])) if op.attributes.get("again") else op


class _Planner:
    def __init__(self, program: Program, reads_int8: Callable[[str], bool]) -> None:
        self.ops, self.output = tuple(_without_kept(op) for op in program.ops), program.output
        self.reads_int8 = reads_int8
        self.uses: dict[int, list[int]] = {op.output.index: [] for op in self.ops}
        for i, op in enumerate(self.ops):
            for value in op.inputs:
                self.uses[value.index].append(i)
        self.uses[self.output.index].append(len(self.ops))
        self.maker = {op.output.index: i for i, op in enumerate(self.ops)}
        self.plan = Plan()
        self.floats: dict[int, Buffer] = {}
        self.int8: dict[int, Buffer] = {}
        self.free: list[Buffer] = []
        self.in_head = False

    # ---- which adds disappear ----
    def _melted(self) -> dict[int, Value]:
        """-> for the value that an op adds into its other summand: value index -> that summand."""
        into: dict[int, Value] = {}
        for i, op in enumerate(self.ops):
            if op.name == "add":
                for x, y in (op.inputs, op.inputs[::-1]):
                    if self._can_add(i, x, y):
                        into[y.index] = x
                        break
        return into

    def _can_add(self, i: int, x: Value, y: Value) -> bool:
        """Whether y's maker may add into x's buffer: y is for this add alone, and nothing reads x in between or later."""
        j = self.maker[y.index]
        maker = self.ops[j]
        if maker.name == "linear":
            # A float32 matrix would read rows of x that other threads have added to already.
            plain = not maker.attributes["bias"] and (x not in maker.inputs or self.reads_int8(maker.weights[0]))
        else:
            plain = maker.name in _SEND_ROWS
        known = self.maker[x.index] < j
        return plain and known and self.uses[y.index] == [i] and all(u <= j or u == i for u in self.uses[x.index])

    # ---- buffers ----
    def _take(self, width: int, quantised: bool, copies: int = 1) -> Buffer:
        for b in self.free:
            if (b.width, b.quantised, b.head, b.copies) == (width, quantised, self.in_head, copies):
                self.free.remove(b)
                return b
        buffer = Buffer(len(self.plan.buffers), width, quantised, self.in_head, copies)
        self.plan.buffers.append(buffer)
        return buffer

    def _release(self, i: int, op: Op) -> None:
        """Give back buffers of values that op i read last. The head may run several times, so its input stays."""
        if op.name == "logit_rows":
            return
        kept = {b.index for v, b in self.floats.items() if any(u > i for u in self.uses[v])}
        for value in {v.index for v in op.inputs}:
            if all(u <= i for u in self.uses[value]):
                for home in (self.floats, self.int8):
                    buffer = home.pop(value, None)
                    if buffer is not None and buffer.index not in kept:
                        self.free.append(buffer)

    def _needs(self, value: Value) -> tuple[bool, bool]:
        """-> whether something reads the value as float32, as int8."""
        int8 = [u < len(self.ops) and self._multiplies_int8(self.ops[u], value) for u in self.uses[value.index]]
        return not all(int8), any(int8)

    def _multiplies_int8(self, op: Op, value: Value) -> bool:
        """Whether the op multiplies the value, quantised, with a matrix: its first input, if it is such an op."""
        return op.name in (*MULTIPLIES, "experts") and value == op.inputs[0] and self.reads_int8(op.weights[0])

    # ---- steps ----
    def run(self) -> Plan:
        melted = self._melted()
        steps = self.plan.body
        for i, op in enumerate(self.ops):
            if op.name == "logit_rows":
                steps, self.in_head = self.plan.head, True
            if op.name == "add" and any(v.index in melted for v in op.inputs):
                y = next(v for v in op.inputs if v.index in melted)
                self.floats[op.output.index] = self.floats[melted[y.index].index]
                self._quantise_if_read(steps, op.output)
            elif op.output.index in melted:
                summand = melted[op.output.index]
                steps.append(self._step(op, self.floats[summand.index], ADD))
            else:
                self._append(steps, i, op)
            self._release(i, op)
        return self.plan

    def _append(self, steps: list[Step], i: int, op: Op) -> None:
        as_float, as_int8 = self._needs(op.output)
        if as_int8 and not as_float and self._can_quantise(op):
            self.int8[op.output.index] = out = self._take(op.output.width, True)
            steps.append(self._step(op, out, QUANTISE))
            return
        in_place = op.name in _IN_PLACE and self.uses[op.inputs[0].index] == [i]  # nothing else reads what it changes
        out = self.floats[op.inputs[0].index] if in_place else self._take(op.output.width, False)
        self.floats[op.output.index] = out
        steps.append(self._step(op, out, STORE))
        self._quantise_if_read(steps, op.output)

    def _quantise_if_read(self, steps: list[Step], value: Value) -> None:
        if not self._needs(value)[1]:
            return
        self.int8[value.index] = out = self._take(value.width, True)
        steps.append(Step("quantise", Op("quantise", (value,), value), (self.floats[value.index],), out, QUANTISE))

    @staticmethod
    def _can_quantise(op: Op) -> bool:
        if op.name == "attention":
            return bool(op.output.width // op.attributes["num_heads"] % 32 == 0)
        return op.name in _SEND_ROWS and op.attributes.get("groups", 1) == 1

    def _step(self, op: Op, out: Buffer, how: int) -> Step:
        inputs = tuple((self.int8 if self._multiplies_int8(op, v) else self.floats)[v.index] for v in op.inputs)
        return Step(op.name, op, inputs, out, how, self._scratch(op) if op.name == "experts" else ())

    def _scratch(self, op: Op) -> tuple[Buffer, ...]:
        """Room between the matrices of experts; other ops may have it next."""
        ffn, used, width = op.attributes["ffn"], op.attributes["routing"].num_used, op.output.width
        down = op.weights[op.attributes["matrices"] - 1]
        wanted = [(width, self.reads_int8(op.weights[0])), (ffn, False), (ffn, False), (ffn, self.reads_int8(down))]
        scratch = [self._take(n, quantised, used) for n, quantised in [*wanted, (width, False)]]
        self.free += scratch
        return tuple(scratch)
