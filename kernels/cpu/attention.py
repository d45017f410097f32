"""Attention over the tiled cache: blocked online softmax (Milakov and Gimelshein 2018; Dao et al. 2022), never a score matrix.

A chunk is one task (queries of adjacent tokens of one sequence) and one kv head, whose query heads share every tile loaded.
This file walks tiles; what a tile's bytes mean is left to kernels called by address (cache_kernels.py), the softmax to
softmax.py. Tiles lie at absolute positions and splits are SPLIT tokens at absolute positions; splits are joined in order,
before them the sink tokens that left the window. A token's result therefore does not depend on its batch, its chunk or the
threads. The block of tile t is in column t of a sequence's block table if t < kept, else kept + (t - kept) % ring.
"""

from __future__ import annotations

import numpy as np

from ..cache_layout import BLOCK_SIZE, HALF
from .elementwise import _emit
from .rotate import rotate
from .simd import (
    arg,
    arg_f32,
    call_ready,
    call_score,
    call_store,
    call_weigh,
    inline,
    load_f32,
    load_f32x8,
    load_f32x32,
    load_i32,
    load_i64,
    maximum,
    mul,
    operand,
    splat8,
    splat32,
    store_f32,
    store_f32x8,
    store_f32x32,
    store_i64,
    sub,
)
from .slots import (
    CALLS,
    END_SPLIT,
    FIRST_SPLIT,
    FIRST_TOKEN,
    NUM_TOKENS,
    PARTIAL_ROW,
    POSITIONS,
    SCRATCH,
    SCRATCH_BYTES,
    SEQUENCES,
    SINKS,
    SOFTMAX_STATE_BYTES,
    SPLIT,
    TABLE,
    TASK_WORDS,
    THREADS,
)
from .softmax import PEAKS_BYTES, ROW_BYTES, cap, clear, join, join_rows, soften
from .softmax_words import exp2

_LANES = 32  # byte of a state where the lanes of its sum begin


@inline
def _block_of(table, tile, kept, ring):
    """The block that holds a tile: see the module."""
    return load_i32(table + 4 * (tile if tile < kept else kept + (tile - kept) % ring))


def store_kv(op, ctx, thread, chunk):
    """Put one token's K and V of one kv head into the cache.

    0 k, 1 bytes of a row of k, 2 v, 3 bytes of a row of v, 4 K, 5 V, 6 block tables, 7 bytes of one, 8 kept, 9 ring, 10 bytes
    of a block, 11 of a K tile, 12 of a V tile, 13 kv heads, 14 head_dim, 15 store_k kernel, 16 store_v kernel, 17 value_dim.
    """
    heads, dim, v_dim = arg(op, 13), arg(op, 14), arg(op, 17)
    row, g = chunk // heads, chunk % heads
    position = load_i64(operand(ctx, POSITIONS) + 8 * row)
    table = arg(op, 6) + load_i64(operand(ctx, SEQUENCES) + 8 * row) * arg(op, 7)
    block = _block_of(table, position // BLOCK_SIZE, arg(op, 8), arg(op, 9)) * arg(op, 10)
    slot = position % BLOCK_SIZE
    k = arg(op, 0) + row * arg(op, 1) + 4 * g * dim
    v = arg(op, 2) + row * arg(op, 3) + 4 * g * v_dim
    call_store(arg(op, 15), k, arg(op, 4) + block + g * arg(op, 11), slot, dim)
    call_store(arg(op, 16), v, arg(op, 5) + block + g * arg(op, 12), slot, v_dim)


def attend(op, ctx, thread, chunk):
    """One task's queries of one kv head over its splits: unnormalised sums and softmax states into partial rows.

    0 q, 1 bytes of a row of q, 2 K, 3 V, 4 block tables, 5 bytes of one, 6 kept, 7 ring, 8 bytes of a block, 9 of a K tile,
    10 of a V tile, 11 kv heads, 12 query heads of a kv head, 13 head_dim, 14 tasks, 15 window (0: none), 16 scale, 17 cap of
    scores (0: none), 18 sink tokens, 19 q for them, 20 partial rows, 21 bytes of one head in a partial row (sums, then
    state), 22 ready, 23 score, 24 weigh kernel, 25 bytes of a row that ready writes, 26 value_dim. Scale and cap are in units of
    log2.
    """
    task, g = arg(op, 14) + chunk // arg(op, 11) * 8 * TASK_WORDS, chunk % arg(op, 11)
    rows, stride = operand(task, NUM_TOKENS) * arg(op, 12), arg(op, 21) - SOFTMAX_STATE_BYTES
    some = (rows + 7) // 8 * 32
    # scratch: see lower.attention_scratch_bytes
    rescales = operand(ctx, SCRATCH) + thread * operand(ctx, SCRATCH_BYTES) + PEAKS_BYTES
    tops, all_tops, lanes = rescales + some + 32, rescales + 2 * some + 32, rescales + 3 * some + 32
    all_lanes = lanes + 32 * rows
    scores = all_lanes + 32 * rows
    sums = scores + ROW_BYTES * rows
    all_sums = sums + stride * rows
    q = all_sums + stride * rows
    bounds = q + rows * arg(op, 25) + 4 * HALF
    first = operand(task, FIRST_SPLIT) - operand(task, SINKS)
    next_k = _next_k(op, ctx, chunk)
    for s in range(first, operand(task, END_SPLIT)):
        is_sinks = s < operand(task, FIRST_SPLIT)
        if s - operand(task, FIRST_SPLIT) <= 0:
            src = arg(op, 19) if is_sinks else arg(op, 0)
            src += operand(task, FIRST_TOKEN) * arg(op, 1) + 4 * g * arg(op, 12) * arg(op, 13)
            call_ready(arg(op, 22), src, arg(op, 1), arg(op, 16), arg(op, 12), arg(op, 13), rows, q)
        to_tops, to_lanes, to = (tops, lanes, sums) if s > first else (all_tops, all_lanes, all_sums)
        clear(rows, to_tops, to_lanes)
        _zero(to, rows * stride)
        _split(op, ctx, task, g, s, is_sinks, rows, next_k, q, scores, bounds, to_tops, rescales, to_lanes, to)
        if s > first:
            join_rows(rows, stride, all_sums, all_tops, all_lanes, sums, tops, lanes, rescales)
    _store_partials(op, task, g, rows, all_sums, all_tops, all_lanes, stride)


@inline
def _next_k(op, ctx, chunk):
    """The first K tile of the chunk that this thread most likely gets next."""
    chunk = min(chunk + operand(ctx, THREADS), operand(op, CALLS) - 1)
    task, g = arg(op, 14) + chunk // arg(op, 11) * 8 * TASK_WORDS, chunk % arg(op, 11)
    table = arg(op, 4) + operand(task, TABLE) * arg(op, 5)
    tile = operand(task, FIRST_SPLIT) * (SPLIT // BLOCK_SIZE)
    return arg(op, 2) + g * arg(op, 9) + _block_of(table, tile, arg(op, 6), arg(op, 7)) * arg(op, 8)


@inline
def _zero(at, nbytes):
    for p in range(at, at + nbytes, 128):
        store_f32x32(p, splat32(np.float32(0)))


@inline
def _store_partials(op, task, g, rows, sums, tops, lanes, stride):
    shared, part_bytes = arg(op, 12), arg(op, 21)
    for i in range(rows):
        row = operand(task, PARTIAL_ROW) + i // shared
        to = arg(op, 20) + ((row * arg(op, 11) + g) * shared + i % shared) * part_bytes
        for d in range(0, stride, 128):
            store_f32x32(to + d, load_f32x32(sums + i * stride + d))
        store_f32(to + stride, load_f32(tops + 4 * i))
        store_f32x8(to + stride + _LANES, load_f32x8(lanes + 32 * i))


@inline
def _split(op, ctx, task, g, s, is_sinks, rows, next_k, q, scores, bounds, tops, rescales, lanes, sums):
    """All tiles of one split that some row reaches, or the one of sink tokens."""
    window, dim, kept, ring = arg(op, 15), arg(op, 13), arg(op, 6), arg(op, 7)
    positions = operand(ctx, POSITIONS) + 8 * operand(task, FIRST_TOKEN)
    lowest, highest = load_i64(positions), load_i64(positions + 8 * (operand(task, NUM_TOKENS) - 1))
    first = max(max(lowest - window + 1 if window > 0 else 0, 0), s * SPLIT) // BLOCK_SIZE
    last = min(highest, s * SPLIT + SPLIT - 1) // BLOCK_SIZE
    if is_sinks:
        first = last = 0
    table = arg(op, 4) + operand(task, TABLE) * arg(op, 5)
    k_base, v_base = arg(op, 2) + g * arg(op, 9), arg(op, 3) + g * arg(op, 10)
    end = first if is_sinks else min(highest // BLOCK_SIZE, operand(task, END_SPLIT) * (SPLIT // BLOCK_SIZE) - 1)
    block = _block_of(table, first, kept, ring) * arg(op, 8)
    for t in range(first, last + 1):
        following = _block_of(table, min(t + 1, end), kept, ring) * arg(op, 8)
        ahead = k_base + following if t < end else next_k
        start = t * BLOCK_SIZE
        # of sink tokens those that have left the window: what lies behind them may not be written yet
        n = min(BLOCK_SIZE, (min(arg(op, 18), highest - window + 1) if is_sinks else highest + 1) - start)
        v = v_base + block
        call_score(arg(op, 23), k_base + block, n, q, rows, dim, scores, v)
        if arg_f32(op, 17) > np.float32(0):
            cap(scores, rows, arg_f32(op, 17))
        edge = is_sinks or start + BLOCK_SIZE - 1 > lowest or (window > 0 and start <= highest - window)
        if edge:
            _set_bounds(op, positions, start, is_sinks, rows, bounds)
        soften(scores, rows, bounds if edge else 0, rescales - PEAKS_BYTES, tops, rescales, lanes)
        call_weigh(arg(op, 24), v, n, scores, rescales, rows, arg(op, 26), sums, ahead)
        block = following


@inline
def _set_bounds(op, positions, start, is_sinks, rows, bounds):
    """Which tokens of a tile each row reaches."""
    window = arg(op, 15)
    for i in range(rows):
        position = load_i64(positions + 8 * (i // arg(op, 12)))
        begin, end = position - window + 1 - start if window > 0 else 0, position + 1 - start
        if is_sinks:
            begin, end = 0, min(arg(op, 18), begin)
        store_i64(bounds + 16 * i, begin)
        store_i64(bounds + 16 * i + 8, end)


def combine(op, ctx, thread, chunk):
    """Join the partial rows of one token and head in order, and divide by the sum of weights.

    0 partial rows, 1 bytes of one head in one, 2 heads, 3 value_dim, 4 where each token's partial rows are: i64[T, 3] first
    row, rows, rows from one to the next, 5 learned sinks f32[heads] (0: none), 6 values rotated together (0: none), 7.. out.
    """
    heads, dim, part_bytes = arg(op, 2), arg(op, 3), arg(op, 1)
    token, h = chunk // heads, chunk % heads
    where = arg(op, 4) + 24 * token
    step = operand(where, 2) * heads * part_bytes
    first = arg(op, 0) + (operand(where, 0) * heads + h) * part_bytes
    state = first + part_bytes - SOFTMAX_STATE_BYTES
    for s in range(1, operand(where, 1)):
        part, part_state = first + s * step, state + s * step
        a, b = _rescales(state, load_f32(part_state))
        join(state - first, first, state + _LANES, a, part, part_state + _LANES, b)
    total, a = _lanes_sum(state + _LANES), np.float32(1)
    if arg(op, 5) != 0:
        a, b = _rescales(state, load_f32(arg(op, 5) + 4 * h) * np.float32(1.4426950408889634))
        total = total * a + b
    by = splat32(a / total)
    if arg(op, 6) != 0:
        for d in range(0, dim, 32):
            store_f32x32(first + 4 * d, mul(load_f32x32(first + 4 * d), by))
        rotate(first, dim, arg(op, 6))
        by = splat32(np.float32(1))
    for d in range(0, dim, 32):
        _emit(op, 7, ctx, thread, token, 4 * (h * dim + d), mul(load_f32x32(first + 4 * d), by), dim - d)


@inline
def _rescales(state, other):
    """Factors of what has been summed up, and of what has the top `other`; the state's top becomes the larger one."""
    ours, theirs = splat8(load_f32(state)), splat8(other)
    top = maximum(ours, theirs)
    store_f32x8(state, exp2(sub(ours, top)))
    a = load_f32(state)
    store_f32x8(state, exp2(sub(theirs, top)))
    b = load_f32(state)
    store_f32x8(state, top)
    return a, b


@inline
def _lanes_sum(at):
    """Sum of eight floats by halves."""
    a, b = load_f32(at) + load_f32(at + 16), load_f32(at + 4) + load_f32(at + 20)
    c, d = load_f32(at + 8) + load_f32(at + 24), load_f32(at + 12) + load_f32(at + 28)
    return (a + c) + (b + d)


KERNELS = {f.__name__: f for f in (store_kv, attend, combine)}
