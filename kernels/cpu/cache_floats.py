"""Kernels of cache formats that hold floats: f16, bf16, e4m3, e5m2. See cache_kernels.py for what they must do.

Queries and weights stay f32; elements become f32 as they are read, so every product and sum is f32's. Elements:
float_elements.py; loops over rows: float_loops.py; layout and meaning: ../cache_formats.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils

from ..cache_layout import BLOCK_SIZE
from .float_elements import ELEMENTS, Element
from .float_loops import HALF_LINE, ROW_BYTES, make_lines, next_rows
from .simd import (
    f32_of_bits,
    fill,
    inline,
    load_f32,
    load_f32x8,
    load_f32x32,
    maximum,
    minimum,
    mul,
    prefetch,
    splat8,
    splat32,
    store_f32x32,
    word,
)
from .vector import I8, I32, I64, f32x8, i64, pointer, unpack, void

Kernel = Callable[..., None]
_FETCH_BYTES = 8 << 10  # a tile of more is fetched half a tile ahead: a whole one would drive others out of L1


def make(part: str, format: str) -> Kernel:
    """Source of one kernel of a format."""
    made: Kernel = _MAKERS[part](ELEMENTS[format])
    return made


# ---- storing ----
def _putters(form: Element) -> tuple[Any, Any]:
    """Words that store eight values: a line apart, side by side."""

    @word(void, i64, f32x8)
    def scatter(b: ir.IRBuilder, to: ir.Value, v: ir.Value) -> None:
        bits = form.write(b, v)
        for i in range(8):
            at = pointer(b, b.add(to, I64(32 * form.size * i)), bits.type.element)
            b.store(b.extract_element(bits, I32(i)), at, align=form.size)

    @word(void, i64, f32x8)
    def put(b: ir.IRBuilder, to: ir.Value, v: ir.Value) -> None:
        bits = form.write(b, v)
        b.store(bits, pointer(b, to, bits.type), align=1)

    return scatter, put


def _make_store_k(form: Element) -> Kernel:
    (scatter, _), element, largest = _putters(form), form.size, form.largest

    def store_k(x, tile, slot, dim):
        to = tile + (slot // 32 * dim * 32 + slot % 32) * element
        for d in range(0, dim, 8):
            v = load_f32x8(x + 4 * d)
            scatter(to + d * 32 * element, maximum(fill(v, -largest), minimum(fill(v, largest), v)))

    return store_k


def _make_store_v(form: Element) -> Kernel:
    (_, put), element, largest = _putters(form), form.size, form.largest

    def store_v(x, tile, slot, dim):
        to = tile + slot * 32 * element
        for d in range(0, (dim + 31) // 32 * 32, 8):
            v = load_f32x8(x + 4 * d) if d < dim else splat8(f32_of_bits(0))
            at = to + (d // 32 * BLOCK_SIZE * 32 + d % 32) * element
            put(at, maximum(fill(v, -largest), minimum(fill(v, largest), v)))

    return store_v


# ---- queries ----
@word(void, i64, i64, *[f32x8] * 6)
def _store_columns(b: ir.IRBuilder, to: ir.Value, gap: ir.Value, *rows: ir.Value) -> None:
    """Six rows of eight as eight columns, `gap` bytes apart. Each column is a whole vector: write them in order."""
    rows = (*rows, *rows[:2])
    pairs = [move for i in range(0, 8, 2) for move in unpack(b, rows[i], rows[i + 1], 1)]
    fours = [move for i in (0, 1, 4, 5) for move in unpack(b, pairs[i], pairs[i + 2], 2)]
    halves = [unpack(b, fours[i], fours[i + 4], 4) for i in range(4)]
    for d in range(8):
        b.store(halves[d % 4][d // 4], pointer(b, b.add(to, b.mul(gap, I64(d))), f32x8.llvm), align=4)


def _make_ready(form: Element) -> Kernel:
    """Queries of rows taken together lie dim by dim, f32[dim, rows]."""

    factor = np.float32(form.factor)

    @inline
    def row(src, src_stride, shared, dim, i):
        return src + i // shared * src_stride + 4 * (i % shared) * dim

    def ready(src, src_stride, scale, shared, dim, rows, to):
        by, first = splat8(f32_of_bits(scale) * factor), 0
        while first < rows:
            count = next_rows(rows - first)
            last, at = first + count - 1, to + 4 * first * dim
            p0, p1 = row(src, src_stride, shared, dim, first), row(src, src_stride, shared, dim, min(first + 1, last))
            p2 = row(src, src_stride, shared, dim, min(first + 2, last))
            p3 = row(src, src_stride, shared, dim, min(first + 3, last))
            p4 = row(src, src_stride, shared, dim, min(first + 4, last))
            p5 = row(src, src_stride, shared, dim, last)
            for d in range(0, 4 * dim, 32):
                a0, a1, a2 = load_f32x8(p0 + d), load_f32x8(p1 + d), load_f32x8(p2 + d)
                a3, a4, a5 = load_f32x8(p3 + d), load_f32x8(p4 + d), load_f32x8(p5 + d)
                a0, a1, a2, a3 = mul(a0, by), mul(a1, by), mul(a2, by), mul(a3, by)
                _store_columns(at + d * count, 4 * count, a0, a1, a2, a3, mul(a4, by), mul(a5, by))
            first += count

    return ready


# ---- q.k and weights @ V ----
def _make_score(form: Element) -> Kernel:
    lines = make_lines(form, "zero", True)

    def score(k_tile, n, q, rows, dim, scores, ahead):
        half = dim * HALF_LINE
        for i in range((n + 31) // 32):
            following = ahead + i * half
            if 2 * half > _FETCH_BYTES:
                following = k_tile + half if i == 0 else ahead
            lines(k_tile + i * half, dim, q, 4 * dim, 0, scores + 128 * i, ROW_BYTES, following, 0, rows)

    return score


def _make_weigh(form: Element) -> Kernel:
    lines, size = make_lines(form, "scaled", False), BLOCK_SIZE * HALF_LINE

    def weigh(v_tile, n, weights, rescales, rows, dim, sums, ahead):
        groups = (dim + 31) // 32
        near = (groups + 1) // 2 if dim * 2 * HALF_LINE > _FETCH_BYTES else groups  # groups that are fetched ahead
        for d in range(groups):
            following = v_tile + (d + near) * size if d + near < groups else ahead + (d + near - groups) * size
            lines(v_tile + d * size, n, weights, ROW_BYTES, 0, sums + 128 * d, 128 * groups, following, rescales, rows)

    return weigh


# ---- the same for elements of a byte: some lines at a time become halves, once for all rows ----
_SOME = 32
"""Lines at a time: 2 KB of stack, for Windows wants a stack of more than a page to be touched in order."""


def _make_widen(form: Element) -> tuple[Any, Any]:
    """-> a word that makes room for _SOME lines of halves, and what puts lines there."""
    assert form.halves is not None
    halves, codes = form.halves, ir.VectorType(I8, 32)

    @word(i64)
    def room(b: ir.IRBuilder) -> ir.Value:
        kept = cgutils.alloca_once(b, ir.ArrayType(I8, _SOME * HALF_LINE + 64))
        return b.and_(b.add(b.ptrtoint(kept, I64), I64(63)), I64(-64))

    @word(void, i64, i64)
    def line(b: ir.IRBuilder, p: ir.Value, to: ir.Value) -> None:
        bits = halves(b, b.load(pointer(b, p, codes), align=1))
        b.store(bits, pointer(b, to, bits.type), align=2)

    @inline
    def widen(p, n, to, ahead):
        for i in range(n):
            prefetch(ahead + 32 * i)
            line(p + 32 * i, to + HALF_LINE * i)

    return room, widen


def _make_score_bytes(form: Element) -> Kernel:
    lines, (room, widen) = make_lines(form, "loaded", True), _make_widen(form)

    def score(k_tile, n, q, rows, dim, scores, ahead):
        wide, zero = room(), splat32(f32_of_bits(0))
        for i in range((n + 31) // 32):
            for row in range(rows):
                store_f32x32(scores + ROW_BYTES * row + 128 * i, zero)
            for d in range(0, dim, _SOME):
                some, at = min(_SOME, dim - d), 32 * (i * dim + d)
                widen(k_tile + at, some, wide, ahead + at)
                lines(wide, some, q, 4 * dim, d, scores + 128 * i, ROW_BYTES, wide, 0, rows)

    return score


def _make_weigh_bytes(form: Element) -> Kernel:
    lines, (room, widen) = make_lines(form, "loaded", False), _make_widen(form)
    factor = np.float32(form.factor)

    def weigh(v_tile, n, weights, rescales, rows, dim, sums, ahead):
        wide, groups = room(), (dim + 31) // 32
        for row in range(rows):
            by = splat32(load_f32(rescales + 4 * row))
            for p in range(sums + 128 * groups * row, sums + 128 * groups * (row + 1), 128):
                store_f32x32(p, mul(load_f32x32(p), by))
            for p in range(weights + ROW_BYTES * row, weights + ROW_BYTES * (row + 1), 128):
                store_f32x32(p, mul(load_f32x32(p), splat32(factor)))
        for d in range(groups):
            for t in range(0, n, _SOME):
                some, at = min(_SOME, n - t), 32 * (BLOCK_SIZE * d + t)
                widen(v_tile + at, some, wide, ahead + at)
                lines(wide, some, weights, ROW_BYTES, t, sums + 128 * d, 128 * groups, wide, rescales, rows)

    return weigh


_MAKERS: dict[str, Callable[[Element], Kernel]] = {
    "store_k": _make_store_k,
    "store_v": _make_store_v,
    "ready": _make_ready,
    "score": lambda form: _make_score_bytes(form) if form.size == 1 else _make_score(form),
    "weigh": lambda form: _make_weigh_bytes(form) if form.size == 1 else _make_weigh(form),
}
