"""Online softmax over tiles of scores, eight rows at a time (Milakov and Gimelshein 2018): words for attention.

Scores come in units of log2, so that a weight is 2**(score - top). A row's state is its largest score so far (top), and its
sum of weights in eight lanes, which only the end adds up: lane j has tokens j, j + 8, ... of a tile. Tops and rescales of
rows lie side by side, f32[rows rounded up to 8]; lanes are f32[rows, 8].
"""

from __future__ import annotations

import numpy as np

from ..cache_layout import BLOCK_SIZE
from .simd import (
    add,
    div,
    exp,
    fill,
    fma,
    inline,
    keep,
    load_f32,
    load_f32x8,
    load_f32x32,
    load_i64,
    maximum,
    mul,
    splat8,
    splat32,
    store_f32x8,
    store_f32x32,
    sub,
)
from .softmax_words import exp2, fold_add, fold_max, rows_max

LOW = np.float32(-1e30)
ROW_BYTES = 4 * BLOCK_SIZE  # one row's scores of a tile
PEAKS_BYTES = 256  # scratch: eight vectors


@inline
def clear(rows, tops, lanes):
    """No token seen."""
    for i in range(0, rows, 8):
        store_f32x8(tops + 4 * i, splat8(LOW))
    for i in range(rows):
        store_f32x8(lanes + 32 * i, splat8(np.float32(0)))


@inline
def cap(scores, rows, limit):
    """scores = limit * tanh(scores / limit), where tanh x = 1 - 2 / (1 + exp(2 x))."""
    for at in range(scores, scores + rows * ROW_BYTES, 128):
        v = load_f32x32(at)
        e = exp(mul(v, splat32(np.float32(2) / limit)))
        tanh = sub(fill(v, 1.0), div(fill(v, 2.0), add(e, fill(v, 1.0))))
        store_f32x32(at, mul(tanh, splat32(limit)))


@inline
def soften(scores, rows, bounds, peaks, tops, rescales, lanes):
    """Turn scores of a tile into weights. bounds: i64[rows, 2] first and end of each row's tokens in it; 0: all count."""
    low = splat32(LOW)
    for first in range(0, rows, 8):
        count = min(8, rows - first)
        for i in range(count):
            at = scores + (first + i) * ROW_BYTES
            a, b = load_f32x32(at), load_f32x32(at + 128)
            if bounds != 0:
                begin, end = load_i64(bounds + 16 * (first + i)), load_i64(bounds + 16 * (first + i) + 8)
                a, b = keep(a, begin, end, low), keep(b, begin - 32, end - 32, low)
                store_f32x32(at, a)
                store_f32x32(at + 128, b)
            store_f32x8(peaks + 32 * i, fold_max(maximum(a, b)))
        before = load_f32x8(tops + 4 * first)
        top = maximum(rows_max(peaks), before)
        store_f32x8(tops + 4 * first, top)
        store_f32x8(rescales + 4 * first, exp2(sub(before, top)))
        for i in range(first, first + count):
            _weights(scores + i * ROW_BYTES, bounds, i, load_f32(tops + 4 * i), load_f32(rescales + 4 * i), lanes)


@inline
def _weights(at, bounds, i, top, rescale, lanes):
    by = splat32(top)
    a, b = exp2(sub(load_f32x32(at), by)), exp2(sub(load_f32x32(at + 128), by))
    if bounds != 0:
        zero = splat32(np.float32(0))
        begin, end = load_i64(bounds + 16 * i), load_i64(bounds + 16 * i + 8)
        a, b = keep(a, begin, end, zero), keep(b, begin - 32, end - 32, zero)
    store_f32x32(at, a)
    store_f32x32(at + 128, b)
    store_f32x8(lanes + 32 * i, fma(load_f32x8(lanes + 32 * i), splat8(rescale), fold_add(add(a, b))))


@inline
def join_rows(rows, stride, sums, tops, lanes, part_sums, part_tops, part_lanes, rescales):
    """Join a later split's sums and states into those of the splits before it."""
    for first in range(0, rows, 8):
        ours, theirs = load_f32x8(tops + 4 * first), load_f32x8(part_tops + 4 * first)
        top = maximum(ours, theirs)
        store_f32x8(tops + 4 * first, top)
        store_f32x8(rescales, exp2(sub(ours, top)))
        store_f32x8(rescales + 32, exp2(sub(theirs, top)))
        for i in range(first, min(first + 8, rows)):
            a, b = load_f32(rescales + 4 * (i - first)), load_f32(rescales + 32 + 4 * (i - first))
            join(stride, sums + i * stride, lanes + 32 * i, a, part_sums + i * stride, part_lanes + 32 * i, b)


@inline
def join(stride, sums, lanes, a, part_sums, part_lanes, b):
    """sums * a + part_sums * b, and the same of the lanes."""
    u, v = splat32(a), splat32(b)
    for d in range(0, stride, 128):
        store_f32x32(sums + d, fma(load_f32x32(part_sums + d), v, mul(load_f32x32(sums + d), u)))
    store_f32x8(lanes, fma(load_f32x8(part_lanes), splat8(b), mul(load_f32x8(lanes), splat8(a))))
