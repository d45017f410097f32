"""Words for R rows of factors times V vectors of a cache tile: what q.k and weights @ V have in common.

A line is 32 elements of a tile that lie side by side: one dim of 32 tokens of K, or 32 dims of one token of V. Both kernels
are `out[r] = start[r] + sum over lines i of factors[r, i] * line[i]`, in order of i, whatever R and V are: lanes never
meet, so the result depends on neither. R x V are chosen so that sums, lines and one factor fill AVX2's 16 registers.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from llvmlite import ir

from .lanes import FLOATS, Tile, float_at, make_tuple, take_apart
from .simd import word
from .vector import I64, constant, fma_of, i64, pointer, void

Read = Callable[[ir.IRBuilder, ir.Value], ir.Value]
"""Eight elements at an address as f32."""


def row_words(rows: int, vectors: int, element: int, gap: int, read: Read) -> ModuleType:
    """The words for `rows` x `vectors`, elements having `element` bytes and rows' factors lying `gap` bytes apart."""
    w: Any = ModuleType("words")
    tile = Tile("f", FLOATS, rows * vectors)

    def at(b: ir.IRBuilder, base: ir.Value, stride: ir.Value, row: int) -> ir.Value:
        return b.add(base, b.mul(stride, I64(row))) if row else base

    @word(tile, i64, i64, i64)
    def scaled(b: ir.IRBuilder, out: ir.Value, stride: ir.Value, rescales: ir.Value) -> ir.Value:
        """out[r] * rescales[r]."""
        sums = []
        for r in range(rows):
            by = float_at(b, rescales, 4 * r)
            for v in range(vectors):
                to = pointer(b, b.add(at(b, out, stride, r), I64(32 * v)), FLOATS)
                sums.append(b.fmul(b.load(to, align=4), by))
        return make_tuple(b, sums)

    @word(tile, tile, i64, i64)
    def step(b: ir.IRBuilder, acc: ir.Value, line: ir.Value, f: ir.Value) -> ir.Value:
        """acc[r] + factor r times a line."""
        sums = take_apart(b, acc)
        vector = lambda v: read(b, b.add(line, I64(8 * element * v)))  # noqa: E731
        factor = lambda r: float_at(b, f, gap * r)  # noqa: E731
        # What there is less of is kept in registers.
        if vectors < rows:
            values = [vector(v) for v in range(vectors)]
            products = (
                (r, v, factor_r, values[v]) for r in range(rows) for factor_r in [factor(r)] for v in range(vectors)
            )
        else:
            factors = [factor(r) for r in range(rows)]
            products = ((r, v, factors[r], value) for v in range(vectors) for value in [vector(v)] for r in range(rows))
        for r, v, x, y in products:
            sums[r * vectors + v] = fma_of(b, y, x, sums[r * vectors + v])
        return make_tuple(b, sums)

    @word(void, i64, i64, tile)
    def store(b: ir.IRBuilder, out: ir.Value, stride: ir.Value, acc: ir.Value) -> None:
        for i, v in enumerate(take_apart(b, acc)):
            to = b.add(at(b, out, stride, i // vectors), I64(32 * (i % vectors)))
            b.store(v, pointer(b, to, FLOATS), align=4)

    zeros = lambda b, *_: make_tuple(b, [constant(FLOATS, 0.0)] * (rows * vectors))  # noqa: E731
    w.zero = word(tile, i64, i64, i64)(zeros)
    w.scaled, w.step, w.store = scaled, step, store
    words: ModuleType = w
    return words
