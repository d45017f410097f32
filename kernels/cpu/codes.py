"""Words on weights that are short codes: one to four bits that stand for the int8 values of a table.

Eight rows of a group of 32 columns are 32 bytes per bit of a code, which `unpack.py` takes apart; of one bit, bit s of
each byte is step s. Behind the codes lie int8 scales, one or two (one per 16 columns) for each row, or none.

Knows no format and no instruction: a table's values are shifted to be unsigned, and `dots.py` multiplies.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir

from . import dots
from .dots import INTS, SHORTS
from .simd import word
from .tiles import FLOATS, Scale, Tile
from .unpack import Steps, cut, nibbles, part, three_bits, two_bits
from .vector import I8, I32, I64, constant, f32x8, i64, pointer


def _codes(b: ir.IRBuilder, p: ir.Value, bits: int, halves: Sequence[int]) -> Steps:
    """(step, 32 codes) of a group; half 0 is steps 0-3, half 1 steps 4-7."""
    if bits == 4:
        yield from ((step, q) for step, q in nibbles(b, p) if step // 4 in halves)
        return
    for h in halves:
        if bits == 1:
            v = part(b, p, 0)
            yield from ((step, cut(b, v, step, 1)) for step in range(4 * h, 4 * h + 4))
        else:
            yield from (two_bits if bits == 2 else three_bits)(b, p, h)


def _scale(b: ir.IRBuilder, way: Any, p: ir.Value, count: int, which: int) -> ir.Value:
    """One int8 of each row, in the form that the level multiplies with; a row has `count` of them side by side."""
    raw = b.load(pointer(b, p, ir.VectorType(I8, 8 * count)), align=1)
    if count == 1:
        raw = b.shuffle_vector(raw, raw, ir.Constant(ir.VectorType(I32, 16), [i // 2 for i in range(16)]))
    return way.scale_of(b, b.sext(raw, SHORTS), which)


class _Dot:
    """A group's codes times its activations, for one table."""

    def __init__(self, values: Sequence[int], bits: int, tokens: int) -> None:
        self.way: Any = dots.way()
        self.bits, self.tokens = bits, tokens
        self.largest = max(map(abs, values))
        self.offset = max(0, -min(values) - 1).bit_length()
        table = [v + (1 << self.offset) for v in values]
        assert min(table) >= 0 and max(table) <= 129, "two products of int8 with more would not fit int16"
        self.plain = table == list(range(len(table)))  # the code is the value
        self.table = table + [0] * (16 - len(table))

    def _steps(self, b: ir.IRBuilder, p: ir.Value, halves: Sequence[int]) -> Steps:
        for step, q in _codes(b, p, self.bits, halves):
            yield step, q if self.plain else self.way.lookup(b, q, self.table)

    def _starts(self, b: ir.IRBuilder, x: ir.Value, halves: Sequence[int]) -> list[ir.Value]:
        """Minus the activations' sum over those halves."""
        starts = []
        for t in range(self.tokens):
            each = [self.way.start(b, x, (40 + 4 * h) * self.tokens + 4 * t) for h in halves]
            starts.append(each[0] if len(each) == 1 else b.add(*each))
        return starts

    def __call__(
        self, b: ir.IRBuilder, p: ir.Value, x: ir.Value, halves: Sequence[int], scale: ir.Value | None
    ) -> list[ir.Value]:
        """int32 sums, one per token, times the scale if there is one."""
        total = self.way.total if scale is None else lambda b, a: self.way.scaled(b, a, scale)
        if self._fits(len(halves)):
            sums = [self.way.shift(b, s, I64(self.offset)) for s in self._starts(b, x, halves)]
            for step, v in self._steps(b, p, halves):
                sums = self.way.mac(b, sums, v, b.add(x, I64(4 * self.tokens * step)))
            return [total(b, s) for s in sums]
        if len(halves) == 2 and self._fits(1):
            parts = [self(b, p, x, (h,), scale) for h in halves]
            return [b.add(low, high) for low, high in zip(*parts, strict=True)]
        factor = constant(SHORTS, 1) if scale is None else scale
        sums = [b.shl(total(b, s), constant(INTS, self.offset)) for s in self._starts(b, x, halves)]
        for step, v in self._steps(b, p, halves):
            sums = self.way.mac_scaled(b, sums, v, b.add(x, I64(4 * self.tokens * step)), factor)
        return sums

    def _fits(self, halves: int) -> bool:
        """Whether a lane of the level's sums holds that many halves, whatever the activations: of 16 bits, it collects two
        columns of each of four steps, and only its final value must fit.
        """
        return self.way.sums.element.width > 16 or 2 * 4 * halves * 127 * self.largest < 1 << 15


def add_codes(w: Any, T: int) -> None:
    """Add the words on codes to the words of tiles of T tokens."""
    way: Any = dots.way()
    N = Tile("i", INTS, T)
    w.row_scales = word(Scale(way.scale), i64)(lambda b, p: _scale(b, way, p, 1, 0))

    def dot_codes(values: Sequence[int], bits: int, scales: int = 0, halves: Sequence[int] = (0, 1)) -> Any:
        """Make a word (p, x) -> N: the sum of values[code] * activation over a group or half of it, exact.

        scales: int8 scales per row behind the codes, which are multiplied in: none, one, or one for each half.
        """
        dot = _Dot(values, bits, T)

        def lower(b: ir.IRBuilder, p: ir.Value, x: ir.Value) -> ir.Value:
            at = b.add(p, I64(32 * bits))
            scale = [_scale(b, way, at, scales, i) for i in range(scales)]
            if scales == 2:
                pairs = zip(dot(b, p, x, (0,), scale[0]), dot(b, p, x, (1,), scale[1]), strict=True)
                sums = [b.add(low, high) for low, high in pairs]
            else:
                sums = dot(b, p, x, halves, scale[0] if scale else None)
            result = ir.Constant(N.llvm, ir.Undefined)
            for t, s in enumerate(sums):
                result = b.insert_value(result, s, t)
            return result

        return word(N, i64, i64)(lower)

    def times(factor: float) -> Any:
        """Make a word: one float per row times a constant."""
        return word(f32x8, f32x8)(lambda b, d: b.fmul(d, constant(FLOATS, factor)))

    w.dot_codes, w.times = dot_codes, times
