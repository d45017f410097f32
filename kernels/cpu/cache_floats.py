"""Kernels of cache formats that hold floats: f16, bf16, e4m3, e5m2. See cache_kernels.py for what they must do.

Queries and weights stay f32; elements become f32 as they are read, so every product and sum is f32's. Elements:
float_elements.py; layout and meaning: ../cache_formats; the loops' words: float_rows.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from ..cache_layout import BLOCK_SIZE
from .float_elements import ELEMENTS, Element
from .float_rows import row_words
from .simd import (
    f32_of_bits,
    fill,
    function,
    inline,
    load_f32x8,
    maximum,
    minimum,
    mul,
    prefetch,
    splat8,
    word,
)
from .vector import I32, I64, f32x8, i64, pointer, unpack, void

Kernel = Callable[..., None]
_ROW_BYTES = 4 * BLOCK_SIZE  # one row's scores or weights of a tile
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


# ---- rows are taken together: six at a time, then what fills registers best ----
@inline
def _next_rows(left):
    if left >= 9 or left == 6:
        return 6
    if left == 5:
        return 5
    return min(left, 4)


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

    @inline
    def row(src, src_stride, shared, dim, i):
        return src + i // shared * src_stride + 4 * (i % shared) * dim

    def ready(src, src_stride, scale, shared, dim, rows, to):
        by, first = splat8(f32_of_bits(scale)), 0
        while first < rows:
            count = _next_rows(rows - first)
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
def _make_block(form: Element, rows: int, vectors: int, adds: bool) -> Any:
    """-> out[rows, 32] = (out * rescales, or 0) + f[rows, n] @ lines[n, 32], `vectors` of eight at a time.

    Factors lie as scores if it adds, else as `ready` puts them. Fetches as many lines at `ahead`, evenly.
    """
    size, line, part = form.size, 32 * form.size, 8 * vectors * form.size
    gap, step = (_ROW_BYTES, 4) if adds else (4, 4 * rows)
    w = row_words(rows, vectors, size, gap, form.read)
    begin = w.scaled if adds else w.zero

    @function
    def block(p, n, f, out, out_stride, ahead, rescales):
        for first in range(0, line, part):
            to, following = out + first * (4 // size), ahead + first * n
            acc = begin(to, out_stride, rescales)
            for i in range(n):
                prefetch(following + part * i)
                acc = w.step(acc, p + first + line * i, f + step * i)
            w.store(to, out_stride, acc)

    return block


def _make_lines(form: Element, adds: bool) -> Any:
    """The same for any number of rows; the factors of the next row lie `f_row` bytes on."""
    six, five, four = (_make_block(form, rows, 2, adds) for rows in (6, 5, 4))
    three, two, one = (_make_block(form, rows, 4, adds) for rows in (3, 2, 1))

    @inline
    def lines(p, n, f, f_row, out, out_stride, ahead, rescales, rows):
        i = 0
        while i < rows:
            count = _next_rows(rows - i)
            g, to, r = f + i * f_row, out + i * out_stride, rescales + 4 * i
            if count == 6:
                six(p, n, g, to, out_stride, ahead, r)
            elif count == 5:
                five(p, n, g, to, out_stride, ahead, r)
            elif count == 4:
                four(p, n, g, to, out_stride, ahead, r)
            elif count == 3:
                three(p, n, g, to, out_stride, ahead, r)
            elif count == 2:
                two(p, n, g, to, out_stride, ahead, r)
            else:
                one(p, n, g, to, out_stride, ahead, r)
            i += count
            ahead = p  # it is there now

    return lines


def _make_score(form: Element) -> Kernel:
    lines, line = _make_lines(form, False), 32 * form.size

    def score(k_tile, n, q, rows, dim, scores, ahead):
        half = dim * line
        for i in range((n + 31) // 32):
            following = ahead + i * half
            if 2 * half > _FETCH_BYTES:
                following = k_tile + half if i == 0 else ahead
            lines(k_tile + i * half, dim, q, 4 * dim, scores + 128 * i, _ROW_BYTES, following, 0, rows)

    return score


def _make_weigh(form: Element) -> Kernel:
    lines, line = _make_lines(form, True), 32 * form.size

    def weigh(v_tile, n, weights, rescales, rows, dim, sums, ahead):
        groups, size = (dim + 31) // 32, BLOCK_SIZE * line
        near = (groups + 1) // 2 if dim * 2 * line > _FETCH_BYTES else groups  # groups that are fetched ahead
        for d in range(groups):
            following = v_tile + (d + near) * size if d + near < groups else ahead + (d + near - groups) * size
            lines(v_tile + d * size, n, weights, _ROW_BYTES, sums + 128 * d, 128 * groups, following, rescales, rows)

    return weigh


_MAKERS: dict[str, Callable[[Element], Kernel]] = {
    "store_k": _make_store_k,
    "store_v": _make_store_v,
    "ready": _make_ready,
    "score": _make_score,
    "weigh": _make_weigh,
}
