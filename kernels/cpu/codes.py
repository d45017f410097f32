"""Words on weights that are short codes: one to four bits that stand for the int8 values of a table.

Eight rows of a group of 32 columns are 32 bytes per bit of a code, which `unpack.py` takes apart. Behind the codes lie int8
scales, one or two (one per 16 columns) for each row, or none.

Knows no format and no instruction: a table's values are shifted to be unsigned, and `dots.py` multiplies.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir

from ..formats.coded import offset_of
from . import dots
from .dots import INTS, SHORTS, STARTS
from .groups import GroupSteps
from .lanes import FLOATS, Shape, make_tuple, take_apart
from .simd import word
from .vector import I8, I32, I64, constant, i64, pointer


def _scale(b: ir.IRBuilder, way: Any, p: ir.Value, count: int, which: int) -> ir.Value:
    """One int8 of each row, in the form that the level multiplies with; a row has `count` of them side by side."""
    raw = b.load(pointer(b, p, ir.VectorType(I8, 8 * count)), align=1)
    if count == 1:
        raw = b.shuffle_vector(raw, raw, ir.Constant(ir.VectorType(I32, 16), [i // 2 for i in range(16)]))
    return way.scale_of(b, b.sext(raw, SHORTS), which)


class _Dot:
    """A group's codes times its activations. values: what codes mean; steps give them plus 2**offset, unsigned."""

    def __init__(self, values: Sequence[int], steps: GroupSteps, tokens: int) -> None:
        self.way: Any = dots.way()
        self.steps, self.tokens = steps, tokens
        self.largest, self.offset = max(map(abs, values)), offset_of(values)

    def _starts(self, b: ir.IRBuilder, x: ir.Value, halves: tuple[int, ...]) -> list[ir.Value]:
        """Minus the activations' sum over those halves."""
        starts = []
        for t in range(self.tokens):
            each = [self.way.start(b, x, STARTS[h] * self.tokens + 4 * t) for h in halves]
            starts.append(each[0] if len(each) == 1 else b.add(*each))
        return starts

    def __call__(
        self, b: ir.IRBuilder, p: ir.Value, x: ir.Value, halves: tuple[int, ...], scale: ir.Value | None
    ) -> list[ir.Value]:
        """int32 sums, one per token, times the scale if there is one."""
        total = self.way.total if scale is None else lambda b, a: self.way.scaled(b, a, scale)
        if self._fits(len(halves)):
            sums = [self.way.shift(b, s, I64(self.offset)) for s in self._starts(b, x, halves)]
            return [total(b, s) for s in self.way.mac_group(b, sums, self.steps.values(b, p, halves), x)]
        if len(halves) == 2 and self._fits(1):
            parts = [self(b, p, x, (h,), scale) for h in halves]
            return [b.add(low, high) for low, high in zip(*parts, strict=True)]
        factor = constant(SHORTS, 1) if scale is None else scale
        sums = [b.shl(total(b, s), constant(INTS, self.offset)) for s in self._starts(b, x, halves)]
        for step, v in self.steps.values(b, p, halves):
            sums = self.way.mac_scaled(b, sums, v, b.add(x, I64(4 * self.tokens * step)), factor)
        return sums

    def _fits(self, halves: int) -> bool:
        """Whether a lane of the level's sums holds that many halves, whatever the activations: of 16 bits, it collects two
        columns of each of four steps, and only its final value must fit.
        """
        return self.way.sums.element.width > 16 or 2 * 4 * halves * 127 * self.largest < 1 << 15


def add_codes(w: Any, shape: Shape, steps: GroupSteps) -> None:
    """Add the words on codes."""
    way: Any = dots.way()

    def dot_codes(values: Sequence[int], scales: int = 0, halves: tuple[int, ...] = (0, 1)) -> Any:
        """Make a word (p, x) -> N: the sum of values[code] * activation over a group or half of it, exact.

        scales: int8 scales per row behind the codes, which are multiplied in: none, one, or one for each half.
        """
        dot = _Dot(values, steps, shape.tokens)

        def one(b: ir.IRBuilder, p: ir.Value, x: ir.Value) -> list[ir.Value]:
            scale = [_scale(b, way, b.add(p, I64(w.CODES)), scales, i) for i in range(scales)]
            if scales == 2:
                pairs = zip(dot(b, p, x, (0,), scale[0]), dot(b, p, x, (1,), scale[1]), strict=True)
                return [b.add(low, high) for low, high in pairs]
            return dot(b, p, x, halves, scale[0] if scale else None)

        def lower(b: ir.IRBuilder, p: ir.Value, x: ir.Value) -> ir.Value:
            return make_tuple(b, [s for at in shape.places(b, p) for s in one(b, at, x)])

        return word(shape.ints, i64, i64)(lower)

    def times(factor: float) -> Any:
        """Make a word: one float per row times a constant."""
        scaled = lambda b, d: make_tuple(b, [b.fmul(v, constant(FLOATS, factor)) for v in take_apart(b, d)])  # noqa: E731
        return word(shape.row_floats, shape.row_floats)(scaled)

    def row_scales(b: ir.IRBuilder, p: ir.Value) -> ir.Value:
        """Eight int8, one per row."""
        return make_tuple(b, [_scale(b, way, at, 1, 0) for at in shape.places(b, p)])

    w.dot_codes, w.times, w.row_scales = dot_codes, times, word(shape.scales(way), i64)(row_scales)
