"""Attention over the tiled cache: blocked online softmax (Milakov and Gimelshein 2018; Dao et al. 2022), never a score matrix.

A chunk is one task (queries of adjacent tokens of one sequence) and one kv head, whose query heads share every K and V tile
loaded. One cached token is one lane: q.k adds dimensions in order and p.v adds tokens in order, so nothing depends on
register width. Tiles lie at absolute positions and splits are SPLIT tokens at absolute positions; `fold` joins splits in
order. A token's result therefore does not depend on its batch, its chunk or the threads. Layout: ../cache_layout.py.
"""

from __future__ import annotations

import numpy as np

from ..cache_layout import BLOCK_SIZE
from .elementwise import _emit
from .simd import (
    arg,
    arg_f32,
    div,
    exp,
    fill,
    fma,
    function,
    inline,
    keep,
    load_f16x8,
    load_f32,
    load_f32x8,
    load_f32x32,
    load_i32,
    load_i64,
    maximum,
    minimum,
    mul,
    operand,
    prefetch,
    reduce_add,
    reduce_max,
    scatter_f16x32,
    splat8,
    splat32,
    store_f16,
    store_f16x32,
    store_f32,
    store_f32x8,
    store_f32x32,
    sub,
)
from .slots import (
    END_SPLIT,
    FIRST_SPLIT,
    FIRST_TOKEN,
    NUM_TOKENS,
    PARTIAL_ROW,
    POSITIONS,
    SCRATCH,
    SCRATCH_BYTES,
    SEQUENCES,
    SOFTMAX_STATE_BYTES,
    SPLIT,
    TABLE,
    TASK_WORDS,
)

_LOW = np.float32(-1e30)
_ROW_BYTES = 4 * BLOCK_SIZE  # one query's scores of a tile
_HALF_LINE = 64  # bytes of 32 halves: one dim of a K half tile, one token of a V tile


@inline
def _within_half(v):
    """Values that float16 can hold: an infinite V would reach earlier tokens of its chunk as zero times infinity."""
    return maximum(fill(v, -65504.0), minimum(fill(v, 65504.0), v))


def store_kv(op, ctx, thread, chunk):
    """Put one token's K and V of one kv head into the cache, as float16; what exceeds its range becomes its largest.

    0 k, 1 bytes of a row of k, 2 v, 3 bytes of a row of v, 4 K cache, 5 V cache, 6 block tables, 7 bytes of one, 8 kv heads,
    9 head_dim, 10 bytes of a K tile, 11 bytes of a V tile.
    """
    heads, dim = arg(op, 8), arg(op, 9)
    row, g = chunk // heads, chunk % heads
    position = load_i64(operand(ctx, POSITIONS) + 8 * row)
    table = arg(op, 6) + load_i64(operand(ctx, SEQUENCES) + 8 * row) * arg(op, 7)
    tile = load_i32(table + 4 * (position // BLOCK_SIZE)) * heads + g
    slot = position % BLOCK_SIZE
    k = arg(op, 0) + row * arg(op, 1) + 4 * g * dim
    v = arg(op, 2) + row * arg(op, 3) + 4 * g * dim
    to = arg(op, 4) + tile * arg(op, 10) + slot // 32 * dim * _HALF_LINE + slot % 32 * 2
    whole = dim // 32 * 32
    for d in range(0, whole, 32):
        scatter_f16x32(to + d * _HALF_LINE, _within_half(load_f32x32(k + 4 * d)))
    for d in range(whole, dim):
        x = load_f32(k + 4 * d)
        x = np.float32(65504) if x > np.float32(65504) else x  # not min(): it would hide a NaN
        store_f16(to + d * _HALF_LINE, np.float32(-65504) if x < np.float32(-65504) else x)
    to = arg(op, 5) + tile * arg(op, 11) + slot * _HALF_LINE
    for d in range(0, dim, 32):
        x = keep(load_f32x32(v + 4 * d), 0, dim - d, splat32(np.float32(0)))
        store_f16x32(to + d // 32 * BLOCK_SIZE * _HALF_LINE, _within_half(x))


# ---- out[R, 32] = out * rescale + factors[R, n] @ rows[n, 32], rows in order ----
@inline
def _scaled(out, i, by):
    return mul(load_f32x8(out + 32 * i), by)


@inline
def _store32(out, a, b, c, d):
    store_f32x8(out, a)
    store_f32x8(out + 32, b)
    store_f32x8(out + 64, c)
    store_f32x8(out + 96, d)


@function
def _block1(rows, ahead, n, f, out, ra):
    x = splat8(ra)
    a0, a1, a2, a3 = _scaled(out, 0, x), _scaled(out, 1, x), _scaled(out, 2, x), _scaled(out, 3, x)
    for i in range(n):
        p = rows + _HALF_LINE * i
        prefetch(ahead + _HALF_LINE * i)
        x = splat8(load_f32(f + 4 * i))
        a0, a1 = fma(load_f16x8(p), x, a0), fma(load_f16x8(p + 16), x, a1)
        a2, a3 = fma(load_f16x8(p + 32), x, a2), fma(load_f16x8(p + 48), x, a3)
    _store32(out, a0, a1, a2, a3)


@inline
def _step2(p, x, y, a, b):
    v = load_f16x8(p)
    return fma(v, x, a), fma(v, y, b)


@function
def _block2(rows, ahead, n, f, f_stride, out, out_stride, ra, rb):
    ob = out + out_stride
    x, y = splat8(ra), splat8(rb)
    a0, a1, a2, a3 = _scaled(out, 0, x), _scaled(out, 1, x), _scaled(out, 2, x), _scaled(out, 3, x)
    b0, b1, b2, b3 = _scaled(ob, 0, y), _scaled(ob, 1, y), _scaled(ob, 2, y), _scaled(ob, 3, y)
    for i in range(n):
        p, g = rows + _HALF_LINE * i, f + 4 * i
        prefetch(ahead + _HALF_LINE * i)
        x, y = splat8(load_f32(g)), splat8(load_f32(g + f_stride))
        a0, b0 = _step2(p, x, y, a0, b0)
        a1, b1 = _step2(p + 16, x, y, a1, b1)
        a2, b2 = _step2(p + 32, x, y, a2, b2)
        a3, b3 = _step2(p + 48, x, y, a3, b3)
    _store32(out, a0, a1, a2, a3)
    _store32(ob, b0, b1, b2, b3)


@inline
def _step3(p, x, y, z, a, b, c):
    v = load_f16x8(p)
    return fma(v, x, a), fma(v, y, b), fma(v, z, c)


@function
def _block3(rows, ahead, n, f, f_stride, out, out_stride, ra, rb, rc):
    """Three rows: 12 sums, 3 factors and 1 vector fill AVX2's 16 registers."""
    ob, oc = out + out_stride, out + 2 * out_stride
    x, y, z = splat8(ra), splat8(rb), splat8(rc)
    a0, a1, a2, a3 = _scaled(out, 0, x), _scaled(out, 1, x), _scaled(out, 2, x), _scaled(out, 3, x)
    b0, b1, b2, b3 = _scaled(ob, 0, y), _scaled(ob, 1, y), _scaled(ob, 2, y), _scaled(ob, 3, y)
    c0, c1, c2, c3 = _scaled(oc, 0, z), _scaled(oc, 1, z), _scaled(oc, 2, z), _scaled(oc, 3, z)
    for i in range(n):
        p, g = rows + _HALF_LINE * i, f + 4 * i
        prefetch(ahead + _HALF_LINE * i)
        x, y, z = splat8(load_f32(g)), splat8(load_f32(g + f_stride)), splat8(load_f32(g + 2 * f_stride))
        a0, b0, c0 = _step3(p, x, y, z, a0, b0, c0)
        a1, b1, c1 = _step3(p + 16, x, y, z, a1, b1, c1)
        a2, b2, c2 = _step3(p + 32, x, y, z, a2, b2, c2)
        a3, b3, c3 = _step3(p + 48, x, y, z, a3, b3, c3)
    _store32(out, a0, a1, a2, a3)
    _store32(ob, b0, b1, b2, b3)
    _store32(oc, c0, c1, c2, c3)


@inline
def _block(rows, ahead, n, f, f_stride, out, out_stride, rescale, rescale_stride, count):
    """All `count` rows, three at a time; four are two and two, which is faster than three and one."""
    i = 0
    while count - i >= 5 or count - i == 3:
        s = rescale + i * rescale_stride
        ra, rb, rc = load_f32(s), load_f32(s + rescale_stride), load_f32(s + 2 * rescale_stride)
        _block3(rows, ahead, n, f + i * f_stride, f_stride, out + i * out_stride, out_stride, ra, rb, rc)
        i += 3
    while count - i >= 2:
        s = rescale + i * rescale_stride
        at = out + i * out_stride
        _block2(rows, ahead, n, f + i * f_stride, f_stride, at, out_stride, load_f32(s), load_f32(s + rescale_stride))
        i += 2
    if count > i:
        _block1(rows, ahead, n, f + i * f_stride, out + i * out_stride, load_f32(rescale + i * rescale_stride))


# ---- one row's softmax state: f32 maximum, sum, and the factor that its sums so far are multiplied with ----
_TOP, _SUM, _RESCALE = 0, 4, 8
_STATE = SOFTMAX_STATE_BYTES


@inline
def _soften(scores, first, end, state):
    """Turn one row's scores of a tile into weights; only tokens first..end-1 count."""
    low, zero = splat32(_LOW), splat32(np.float32(0))
    a = keep(load_f32x32(scores), first, end, low)
    b = keep(load_f32x32(scores + 128), first - 32, end - 32, low)
    before = load_f32(state + _TOP)
    top = max(before, max(reduce_max(a), reduce_max(b)))
    a = keep(exp(sub(a, splat32(top))), first, end, zero)
    b = keep(exp(sub(b, splat32(top))), first - 32, end - 32, zero)
    store_f32x32(scores, a)
    store_f32x32(scores + 128, b)
    store_f32x8(state + _RESCALE, exp(splat8(before - top)))
    store_f32(state + _TOP, top)
    total = load_f32(state + _SUM) * load_f32(state + _RESCALE)
    store_f32(state + _SUM, total + (reduce_add(a) + reduce_add(b)))


@inline
def _fold(into, into_state, part, part_state, padded_dim):
    """Join a later split's sums and state into those of the splits before it."""
    top = max(load_f32(into_state + _TOP), load_f32(part_state + _TOP))
    a = exp(splat32(load_f32(into_state + _TOP) - top))
    b = exp(splat32(load_f32(part_state + _TOP) - top))
    for d in range(0, 4 * padded_dim, 128):
        store_f32x32(into + d, fma(load_f32x32(part + d), b, mul(load_f32x32(into + d), a)))
    total = fma(splat32(load_f32(part_state + _SUM)), b, mul(splat32(load_f32(into_state + _SUM)), a))
    store_f32(into_state + _TOP, top)
    store_f32(into_state + _SUM, reduce_max(total))


@inline
def _load_queries(q, q_stride, scale, shared, dim, rows, to):
    """Queries of `rows` (token, head) pairs, scaled, one after the other."""
    by = splat32(scale)
    for i in range(rows):
        src = q + i // shared * q_stride + 4 * (i % shared) * dim
        for d in range(0, dim, 32):
            store_f32x32(to + 4 * (i * dim + d), mul(load_f32x32(src + 4 * d), by))


@inline
def _clear(rows, sums, stride, states, ones):
    for i in range(rows):
        for d in range(0, stride, 128):
            store_f32x32(sums + i * stride + d, splat32(np.float32(0)))
        store_f32(states + _STATE * i + _TOP, _LOW)
        store_f32(states + _STATE * i + _SUM, np.float32(0))
    store_f32(ones, np.float32(0))


def attend(op, ctx, thread, chunk):
    """One task's queries of one kv head over its splits: unnormalised sums and softmax states into partial rows.

    0 q, 1 bytes of a row of q, 2 K cache, 3 V cache, 4 block tables, 5 bytes of one, 6 kv heads, 7 query heads of a kv head,
    8 head_dim, 9 bytes of a K tile, 10 bytes of a V tile, 11 tasks, 12 window (0: none), 13 scale, 14 partial rows, 15 bytes
    of one head in a partial row (sums, then state).
    """
    heads, shared, dim = arg(op, 6), arg(op, 7), arg(op, 8)
    task, g = arg(op, 11) + chunk // heads * 8 * TASK_WORDS, chunk % heads
    first_token, tokens = operand(task, FIRST_TOKEN), operand(task, NUM_TOKENS)
    rows, part_bytes = tokens * shared, arg(op, 15)
    stride = part_bytes - _STATE
    # scratch: zero, queries (read 32 at a time, so padded), scores, states of this split and of all, sums of both
    zero = operand(ctx, SCRATCH) + thread * operand(ctx, SCRATCH_BYTES)
    q = zero + 64
    scores = q + 4 * (rows * dim + 32)
    states = scores + rows * _ROW_BYTES
    sums = states + rows * _STATE
    all_states = sums + rows * stride
    all_sums = all_states + rows * _STATE
    src = arg(op, 0) + first_token * arg(op, 1) + 4 * g * shared * dim
    _load_queries(src, arg(op, 1), arg_f32(op, 13), shared, dim, rows, q)
    for s in range(operand(task, FIRST_SPLIT), operand(task, END_SPLIT)):
        into, into_states = (sums, states) if s > operand(task, FIRST_SPLIT) else (all_sums, all_states)
        _clear(rows, into, stride, into_states, zero)
        _split(op, ctx, task, g, s, rows, q, scores, into, into_states, stride, zero)
        if s > operand(task, FIRST_SPLIT):
            for i in range(rows):
                at = all_sums + i * stride
                _fold(at, all_states + _STATE * i, sums + i * stride, states + _STATE * i, stride // 4)
    _store_partials(op, task, g, rows, all_sums, all_states, stride)


@inline
def _store_partials(op, task, g, rows, sums, states, stride):
    heads, shared, part_bytes = arg(op, 6), arg(op, 7), arg(op, 15)
    for i in range(rows):
        row = operand(task, PARTIAL_ROW) + i // shared
        to = arg(op, 14) + (row * heads * shared + g * shared + i % shared) * part_bytes
        for d in range(0, stride, 128):
            store_f32x32(to + d, load_f32x32(sums + i * stride + d))
        store_f32x8(to + stride, load_f32x8(states + _STATE * i))


@inline
def _split(op, ctx, task, g, s, rows, q, scores, sums, states, stride, zero):
    """All tiles of one split that some row reaches."""
    heads, shared, dim, window = arg(op, 6), arg(op, 7), arg(op, 8), arg(op, 12)
    positions = operand(ctx, POSITIONS) + 8 * operand(task, FIRST_TOKEN)
    low = load_i64(positions) - window + 1 if window > 0 else 0
    high = load_i64(positions + 8 * (operand(task, NUM_TOKENS) - 1))
    first = max(max(low, 0), s * SPLIT) // BLOCK_SIZE
    last = min(high, s * SPLIT + SPLIT - 1) // BLOCK_SIZE
    table = arg(op, 4) + operand(task, TABLE) * arg(op, 5)
    k_bytes, v_bytes = arg(op, 9), arg(op, 10)
    half = dim * _HALF_LINE
    for t in range(first, last + 1):
        tile = load_i32(table + 4 * t) * heads + g
        k, v = arg(op, 2) + tile * k_bytes, arg(op, 3) + tile * v_bytes
        following = arg(op, 2) + (load_i32(table + 4 * min(t + 1, last)) * heads + g) * k_bytes
        n = min(BLOCK_SIZE, high + 1 - t * BLOCK_SIZE)
        # A rescale of zero makes the kernel below start its sums anew.
        _zero_rows(scores, rows)
        _block(k, v, dim, q, 4 * dim, scores, _ROW_BYTES, zero, 0, rows)
        if n > 32:
            _block(k + half, v + half, dim, q, 4 * dim, scores + 128, _ROW_BYTES, zero, 0, rows)
        for i in range(rows):
            position = load_i64(positions + 8 * (i // shared))
            begin = position - window + 1 - t * BLOCK_SIZE if window > 0 else 0
            _soften(scores + i * _ROW_BYTES, begin, position + 1 - t * BLOCK_SIZE, states + _STATE * i)
        for d in range(stride // 128):
            at, ahead = v + d * BLOCK_SIZE * _HALF_LINE, following + d * BLOCK_SIZE * _HALF_LINE
            out = sums + 128 * d
            _block(at, ahead, n, scores, _ROW_BYTES, out, stride, states + _RESCALE, _STATE, rows)


@inline
def _zero_rows(scores, rows):
    for i in range(rows):
        for d in range(0, _ROW_BYTES, 128):
            store_f32x32(scores + i * _ROW_BYTES + d, splat32(np.float32(0)))


def combine(op, ctx, thread, chunk):
    """Join the partial rows of one token and head in order, and divide by the sum of weights.

    0 partial rows, 1 bytes of one head in one, 2 heads, 3 head_dim, 4 where each token's partial rows are: i64[T, 3] first
    row, rows, rows from one to the next, 5.. out.
    """
    heads, dim, part_bytes = arg(op, 2), arg(op, 3), arg(op, 1)
    token, h = chunk // heads, chunk % heads
    where = arg(op, 4) + 24 * token
    step = operand(where, 2) * heads * part_bytes
    first = arg(op, 0) + (operand(where, 0) * heads + h) * part_bytes
    stride = part_bytes - _STATE
    for s in range(1, operand(where, 1)):
        _fold(first, first + stride, first + s * step, first + s * step + stride, stride // 4)
    total = splat32(load_f32(first + stride + _SUM))
    for d in range(0, dim, 32):
        v = div(load_f32x32(first + 4 * d), total)
        _emit(op, 5, ctx, thread, token, 4 * (h * dim + d), v, dim - d)


KERNELS = {f.__name__: f for f in (store_kv, attend, combine)}
