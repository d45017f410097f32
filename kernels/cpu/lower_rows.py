"""Records of the ops that work on rows: norms, activations, products, rope, sums. One method for each, named after the op.

Knows the arguments of the kernels in `elementwise.py` and `activations.py`. Next hop: `lower.py` has matrices and attention.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from ..ops import Op
from . import slots
from .machine import Machine, Place, Shape
from .memory import address, aligned_f32
from .plan import Buffer, Step
from .tape import TapeWriter

KERNELS = {
    "rms_norm": "norm",
    "layer_norm": "layer_norm",
    "gated": "gated",
    "activate": "gated",
    "multiply": "gated",
    "scale": "scale",
    "softcap": "softcap",
    "columns": "scale",
    "add": "add_rows",
    "join_heads": "join_heads",
    "rope": "rope",
    "logit_rows": "gather",
}
"""Which kernel an op needs."""
ACTIVATIONS = {
    "silu": slots.SILU,
    "gelu": slots.GELU,
    "gelu_erf": slots.GELU_ERF,
    "relu": slots.RELU,
    "sigmoid": slots.SIGMOID,
    "softplus": slots.SOFTPLUS,
}


def kernel_names(ops: Iterable[Op]) -> list[str]:
    """Names of the kernels that these ops need, where they are ops on rows."""
    names = []
    for op in ops:
        if op.name == "multiply" and op.inputs[1].width < op.output.width:
            names.append("scale")
        elif op.name in KERNELS:
            names.append(KERNELS[op.name])
    return list(dict.fromkeys(names))


def float_word(value: float) -> int:
    """A float32 as a record holds it."""
    return int(np.float32(value).view(np.int32))


class RowLowering:
    """Writes records for one shape. rows: the name of the tape's size that the ops now written work on."""

    def __init__(self, machine: Machine, shape: Shape) -> None:
        self.m, self.tile, self.panels, self.rows = machine, shape.rows, shape.panels, ""
        # The rows of a tile share cache lines: one thread writes them all. Decode has one token for all threads.
        self.tokens_at_once = self.tile // machine.parts if self.tile == 4 else 1
        sizes = ["tokens", "logit_tokens", *(f"tasks{i}" for i in range(len(machine.groups)))]
        self.writer = TapeWriter(machine.kernels, sizes)
        self.ones: list[NDArray[np.float32]] = []  # weights of norms that have none

    def _place(self, buffer: Buffer) -> Place:
        return self.m.places[buffer.index]

    def _emit(self, step: Step) -> list[int]:
        place = self._place(step.out)
        return [place.address, place.stride, step.how, self.tile, self.m.parts]

    def _op(self, kernel: str, step: Step, arguments: list[int], chunks: int = 1, of: str | None = "rows") -> int:
        reads = [b.index for b in step.inputs] + ([step.out.index] if step.how == slots.ADD else [])
        each = chunks * self.tokens_at_once if of == "rows" else 1
        of = self.rows if of == "rows" else of
        return self.writer.op(kernel, arguments, chunks, of, reads, [step.out.index], each)

    def _groups(self, width: int) -> tuple[int, int]:
        """-> groups of 32 of a row, and how many of them a chunk takes: decode shares a row among threads."""
        groups = -(-width // 32)
        return groups, groups if self.tile == 4 else -(-groups // (4 * self.m.threads))

    # ---- one method per op ----
    def _logit_rows(self, step: Step) -> None:
        x, out = self._place(step.inputs[0]), self._place(step.out)
        self._op("gather", step, [x.address, x.stride, out.address, x.stride // 128])

    def _quantise(self, step: Step) -> None:
        x = self._place(step.inputs[0])
        self._op("quantise", step, [x.address, x.stride, *self._emit(step)])

    def _norm(self, step: Step) -> tuple[list[int], int]:
        """-> the arguments that both norms begin with, and the parts of a row."""
        x, parts = self._place(step.inputs[0]), step.op.attributes["groups"]
        width, epsilon = step.out.width // parts, step.op.attributes["epsilon"]
        if not step.op.weights:
            self.ones.append(aligned_f32(np.ones(width, np.float32)))
        weight = self.m.weights.vectors[step.op.weights[0]] if step.op.weights else self.ones[-1]
        return [x.address, x.stride, address(weight), float_word(epsilon), parts, width], parts

    def _rms_norm(self, step: Step) -> None:
        arguments, parts = self._norm(step)
        self._op("norm", step, [*arguments, *self._emit(step)], parts)

    def _layer_norm(self, step: Step) -> None:
        arguments, parts = self._norm(step)
        names, vectors = step.op.weights, self.m.weights.vectors
        bias = address(vectors[names[1]]) if step.op.attributes["bias"] else 0
        apart = 4 * arguments[5] if vectors[names[0]].size > arguments[5] else 0
        self._op("layer_norm", step, [*arguments, bias, apart, *self._emit(step)], parts)

    def _add(self, step: Step) -> None:
        x, y, out = (self._place(b) for b in (*step.inputs, step.out))
        self._op(
            "add_rows", step, [x.address, x.stride, y.address, y.stride, out.address, out.stride, out.stride // 128]
        )

    def _gated(self, step: Step) -> None:
        gate, up = (self._place(b) for b in step.inputs)
        self._activated(step, gate, up.address, ACTIVATIONS[step.op.attributes["activation"]])

    def _activate(self, step: Step) -> None:
        self._activated(step, self._place(step.inputs[0]), 0, ACTIVATIONS[step.op.attributes["activation"]])

    def _multiply(self, step: Step) -> None:
        x, y = (self._place(b) for b in step.inputs)
        if step.inputs[1].width == step.out.width:
            self._activated(step, x, y.address, slots.IDENTITY)
        else:
            self._scaled(step, x.address, y, 1.0)

    def _activated(self, step: Step, x: Place, up: int, activation: int) -> None:
        groups, some = self._groups(step.out.width)
        arguments = [x.address, up, x.stride, groups, some, activation, *self._emit(step)]
        self._op("gated", step, arguments, -(-groups // some))

    def _scale(self, step: Step) -> None:
        factor = np.float32(step.op.attributes["factor"])
        for name in step.op.weights:
            factor *= self.m.weights.vectors[name][0]
        self._scaled(step, self._place(step.inputs[0]).address, None, float(factor))

    def _columns(self, step: Step) -> None:
        self._scaled(step, self._place(step.inputs[0]).address + 4 * step.op.attributes["start"], None, 1.0)

    def _scaled(self, step: Step, x: int, y: Place | None, factor: float) -> None:
        groups, some = self._groups(step.out.width)
        by = [y.address, y.stride] if y else [0, 0]
        arguments = [x, self._place(step.inputs[0]).stride, *by, float_word(factor), groups, some, *self._emit(step)]
        self._op("scale", step, arguments, -(-groups // some))

    def _softcap(self, step: Step) -> None:
        x, (groups, some) = self._place(step.inputs[0]), self._groups(step.out.width)
        arguments = [x.address, x.stride, groups, some, float_word(step.op.attributes["cap"]), *self._emit(step)]
        self._op("softcap", step, arguments, -(-groups // some))

    def _join_heads(self, step: Step) -> None:
        out, heads = self._place(step.out), step.op.attributes["num_heads"]
        arguments = [out.address, out.stride, 4 * step.op.output.width // heads, heads]
        parts = zip(step.inputs, step.op.inputs, step.op.attributes["parts"], strict=True)
        for buffer, value, (own, start, width) in parts:
            x, head_bytes = self._place(buffer), 4 * value.width // own if own > 1 else 0
            arguments += [x.address + 4 * start, x.stride, head_bytes, width]
        self._op("join_heads", step, arguments)

    def _rope(self, step: Step) -> None:
        x, out = self._place(step.inputs[0]), self._place(step.out)
        rope, heads, table = step.op.attributes["rope"], step.op.attributes["num_heads"], self.m.rope_table(step.op)
        arguments = [x.address, x.stride, heads, step.out.width // heads, rope.dim, address(table)]
        self._op("rope", step, [*arguments, int(rope.pairs == "halves"), out.address])
