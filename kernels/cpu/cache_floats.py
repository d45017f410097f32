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
from .vector import I32, I64, f32x8, i64, pointer, void

Kernel = Callable[..., None]
_ROW_BYTES = 4 * BLOCK_SIZE  # one row's scores or weights of a tile


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
def _make_ready(form: Element) -> Kernel:
    def ready(src, src_stride, scale, shared, dim, rows, to):
        by = splat32(f32_of_bits(scale))
        for i in range(rows):
            p = src + i // shared * src_stride + 4 * (i % shared) * dim
            for d in range(0, dim, 32):
                store_f32x32(to + 4 * (i * dim + d), mul(load_f32x32(p + 4 * d), by))

    return ready


# ---- q.k and weights @ V ----
def _make_block(form: Element, rows: int, vectors: int, adds: bool) -> Any:
    """-> out[rows, 32] = (out * rescales, or 0) + f[rows, n] @ lines[n, 32], `vectors` of eight at a time."""
    w, size, line, part = row_words(rows, vectors, form.size, form.read), form.size, 32 * form.size, 8 * vectors
    begin = w.scaled if adds else w.zero

    @function
    def block(p, n, f, f_stride, out, out_stride, ahead, rescales):
        for first in range(0, 32, part):
            at, to = p + first * size, out + 4 * first
            acc = begin(to, out_stride, rescales)
            for i in range(n):
                prefetch(ahead + line * i)
                acc = w.step(acc, at + line * i, f + 4 * i, f_stride)
            w.store(to, out_stride, acc)
            ahead = p  # that is there now

    return block


def _make_lines(form: Element, adds: bool) -> Any:
    """The same for any number of rows: six at a time, then what fills registers best."""
    six, five, four = (_make_block(form, rows, 2, adds) for rows in (6, 5, 4))
    three, two, one = (_make_block(form, rows, 4, adds) for rows in (3, 2, 1))

    @inline
    def lines(p, n, f, f_stride, out, out_stride, ahead, rescales, rows):
        i = 0
        while i < rows:
            left = rows - i
            g, to, r = f + i * f_stride, out + i * out_stride, rescales + 4 * i
            if left >= 9 or left == 6:
                six(p, n, g, f_stride, to, out_stride, ahead, r)
                i += 6
            elif left == 5:
                five(p, n, g, f_stride, to, out_stride, ahead, r)
                i += 5
            elif left >= 4:
                four(p, n, g, f_stride, to, out_stride, ahead, r)
                i += 4
            elif left == 3:
                three(p, n, g, f_stride, to, out_stride, ahead, r)
                i += 3
            elif left == 2:
                two(p, n, g, f_stride, to, out_stride, ahead, r)
                i += 2
            else:
                one(p, n, g, f_stride, to, out_stride, ahead, r)
                i += 1
            ahead = p

    return lines


def _make_score(form: Element) -> Kernel:
    lines, line = _make_lines(form, False), 32 * form.size

    def score(k_tile, n, q, rows, dim, scores, ahead):
        for half in range((n + 31) // 32):
            at = half * dim * line
            lines(k_tile + at, dim, q, 4 * dim, scores + 128 * half, _ROW_BYTES, ahead + at, 0, rows)

    return score


def _make_weigh(form: Element) -> Kernel:
    lines, line = _make_lines(form, True), 32 * form.size

    def weigh(v_tile, n, weights, rescales, rows, dim, sums, ahead):
        groups = (dim + 31) // 32
        for d in range(groups):
            at = d * BLOCK_SIZE * line
            lines(v_tile + at, n, weights, _ROW_BYTES, sums + 128 * d, 128 * groups, ahead + at, rescales, rows)

    return weigh


_MAKERS: dict[str, Callable[[Element], Kernel]] = {
    "store_k": _make_store_k,
    "store_v": _make_store_v,
    "ready": _make_ready,
    "score": _make_score,
    "weigh": _make_weigh,
}
