"""Kernels that work on rows: norms, rope, sums, products with a number, and quantising what a matrix kernel will read.

Rows are float32, their buffers padded so that 32 values can be read at any of them. Results go out in one of three ways
(`_emit`): stored, added to what is there, or quantised into activation tiles. Reductions use 32 virtual lanes and one
fixed tree, whatever the register width.
"""

from __future__ import annotations

import numpy as np

from .simd import (
    add,
    arg,
    arg_f32,
    fill,
    fma,
    fma1,
    inline,
    keep,
    largest_magnitude,
    load_f32,
    load_f32x8,
    load_f32x32,
    load_i64,
    minimum,
    mul,
    operand,
    reduce_add,
    rint,
    splat32,
    sqrt,
    store_f32,
    store_f32x8,
    store_f32x32,
    store_q8,
    sub,
    swap_pairs,
)
from .slots import ADD, LOGIT_ROWS, QUANTISE, SCRATCH, SCRATCH_BYTES

_SMALLEST_SCALE = np.float32(1e-38)  # below, its inverse is infinite


@inline
def _quantise(out, row, group, groups, tokens, v):
    """One group of one row into activation tiles of `tokens`; `groups` of a row. -> what rounding left over."""
    return quantise_lane(out + (row // tokens * groups + group) * 48 * tokens + row % tokens * 4, tokens, v)


@inline
def quantise_lane(lane, tokens, v):
    """One group of one row to its lane in a tile of `tokens`. -> what rounding left over."""
    d = largest_magnitude(v) / np.float32(127)
    inverse = np.float32(1) / d if d > _SMALLEST_SCALE else np.float32(0)
    # minimum() also catches what is not a number, which must not reach the conversion to int8
    q = rint(minimum(mul(v, splat32(inverse)), fill(v, 127.0)))
    store_q8(lane, tokens, d, q)
    return fma(splat32(-d), q, v)


@inline
def _emit(op, i, ctx, thread, row, offset, v, width):
    """Send 32 values out, of which `width` count; offset: bytes from the row's start.

    Arguments i..: out, bytes of a row (QUANTISE: groups of a row), how, rows of a tile, parts (2: what rounding leaves over
    becomes a row of its own, which makes the precise mode).
    """
    out, stride, how = arg(op, i), arg(op, i + 1), arg(op, i + 2)
    if how == QUANTISE:
        for part in range(arg(op, i + 4)):
            v = _quantise(out, row * arg(op, i + 4) + part, offset // 128, stride, arg(op, i + 3), v)
    else:
        to = out + row * stride + offset
        if how == ADD:
            v = add(load_f32x32(to), v)
        if width >= 32:
            store_f32x32(to, v)
        else:  # what follows belongs to another chunk: touch nothing of it
            scratch = operand(ctx, SCRATCH) + thread * operand(ctx, SCRATCH_BYTES)
            store_f32x32(scratch, v)
            for k in range(width):
                store_f32(to + 4 * k, load_f32(scratch + 4 * k))


def norm(op, ctx, thread, chunk):
    """RMS norm of one part of one row.

    0 x, 1 bytes of a row, 2 weight, 3 epsilon, 4 parts of a row, 5 values of a part, 6.. out. QUANTISE needs one part.
    """
    parts, n = arg(op, 4), arg(op, 5)
    row, offset = chunk // parts, chunk % parts * n * 4
    x, weight = arg(op, 0) + row * arg(op, 1) + offset, arg(op, 2)
    zero = splat32(np.float32(0))
    acc = zero
    for g in range(0, n, 32):
        v = keep(load_f32x32(x + 4 * g), 0, n - g, zero)
        acc = fma(v, v, acc)
    scale = splat32(np.float32(1) / sqrt(reduce_add(acc) / np.float32(n) + arg_f32(op, 3)))
    for g in range(0, n, 32):
        v = mul(mul(load_f32x32(x + 4 * g), scale), load_f32x32(weight + 4 * g))
        _emit(op, 6, ctx, thread, row, offset + 4 * g, v, n - g)


def layer_norm(op, ctx, thread, chunk):
    """Layer norm of one part of one row: the mean is known before squares are added.

    0 x, 1 bytes of a row, 2 weight, 3 epsilon, 4 parts of a row, 5 values of a part, 6 bias (0: none), 7 bytes from a part's
    weight and bias to the next one's, 8.. out. QUANTISE needs one part.
    """
    parts, n = arg(op, 4), arg(op, 5)
    row, part = chunk // parts, chunk % parts
    offset = part * n * 4
    x, weight, bias = arg(op, 0) + row * arg(op, 1) + offset, arg(op, 2) + part * arg(op, 7), arg(op, 6)
    zero = splat32(np.float32(0))
    acc = zero
    for g in range(0, n, 32):
        acc = add(acc, keep(load_f32x32(x + 4 * g), 0, n - g, zero))
    mean = splat32(reduce_add(acc) / np.float32(n))
    acc = zero
    for g in range(0, n, 32):
        v = keep(sub(load_f32x32(x + 4 * g), mean), 0, n - g, zero)
        acc = fma(v, v, acc)
    scale = splat32(np.float32(1) / sqrt(reduce_add(acc) / np.float32(n) + arg_f32(op, 3)))
    for g in range(0, n, 32):
        v = mul(mul(sub(load_f32x32(x + 4 * g), mean), scale), load_f32x32(weight + 4 * g))
        if bias != 0:
            v = add(v, load_f32x32(bias + part * arg(op, 7) + 4 * g))
        _emit(op, 8, ctx, thread, row, offset + 4 * g, v, n - g)


def scale(op, ctx, thread, chunk):
    """A number times some groups of 32 of one row.

    0 x, 1 bytes of a row, 2 each row's number (0: there is one for all), 3 bytes to the next row's, 4 the number for all,
    5 groups of a row, 6 groups of a chunk, 7.. out.
    """
    groups, some = arg(op, 5), arg(op, 6)
    blocks = (groups + some - 1) // some
    row, first = chunk // blocks, chunk % blocks * some
    factor = arg_f32(op, 4)
    if arg(op, 2) != 0:
        factor = load_f32(arg(op, 2) + row * arg(op, 3))
    for g in range(first, min(groups, first + some)):
        v = mul(load_f32x32(arg(op, 0) + row * arg(op, 1) + 128 * g), splat32(factor))
        _emit(op, 7, ctx, thread, row, 128 * g, v, 32)


def quantise(op, ctx, thread, chunk):
    """One row into activation tiles. 0 x, 1 bytes of a row, 2.. out."""
    for g in range(arg(op, 3)):
        v = load_f32x32(arg(op, 0) + chunk * arg(op, 1) + 128 * g)
        _emit(op, 2, ctx, thread, chunk, 128 * g, v, 32)


def add_rows(op, ctx, thread, chunk):
    """out = x + y for one row. 0 x, 1 bytes of a row, 2 y, 3 bytes of a row (0: the same row for all), 4 out, 5 bytes of a row,
    6 groups of 32."""
    x, y = arg(op, 0) + chunk * arg(op, 1), arg(op, 2) + chunk * arg(op, 3)
    out = arg(op, 4) + chunk * arg(op, 5)
    for g in range(arg(op, 6)):
        store_f32x32(out + 128 * g, add(load_f32x32(x + 128 * g), load_f32x32(y + 128 * g)))


def gather(op, ctx, thread, chunk):
    """Copy one of the rows whose logits are wanted. 0 x, 1 bytes of a row, 2 out, 3 groups of 32."""
    row = load_i64(operand(ctx, LOGIT_ROWS) + 8 * chunk)
    x, out = arg(op, 0) + row * arg(op, 1), arg(op, 2) + chunk * arg(op, 1)
    for g in range(arg(op, 3)):
        store_f32x32(out + 128 * g, load_f32x32(x + 128 * g))


@inline
def _rotate_adjacent(x, out, table, dim):
    i = 0
    while i + 8 <= dim:
        v = load_f32x8(x + 4 * i)
        turned = mul(swap_pairs(v), load_f32x8(table + 4 * (dim + i)))
        store_f32x8(out + 4 * i, fma(v, load_f32x8(table + 4 * i), turned))
        i += 8
    while i < dim:
        _rotate_pair(x, out, table, dim, i, i + 1)
        i += 2


@inline
def _rotate_halves(x, out, table, dim):
    half, i = dim // 2, 0
    while i + 8 <= half:
        a, b = load_f32x8(x + 4 * i), load_f32x8(x + 4 * (half + i))
        ta, tb = mul(b, load_f32x8(table + 4 * (dim + i))), mul(a, load_f32x8(table + 4 * (dim + half + i)))
        store_f32x8(out + 4 * i, fma(a, load_f32x8(table + 4 * i), ta))
        store_f32x8(out + 4 * (half + i), fma(b, load_f32x8(table + 4 * (half + i)), tb))
        i += 8
    while i < half:
        _rotate_pair(x, out, table, dim, i, half + i)
        i += 1


@inline
def _rotate_pair(x, out, table, dim, i, j):
    a, b = load_f32(x + 4 * i), load_f32(x + 4 * j)
    store_f32(out + 4 * i, fma1(a, load_f32(table + 4 * i), b * load_f32(table + 4 * (dim + i))))
    store_f32(out + 4 * j, fma1(b, load_f32(table + 4 * j), a * load_f32(table + 4 * (dim + j))))


def rope(op, ctx, thread, chunk):
    """Rotate the heads of one row, in place where out is x.

    0 x, 1 bytes of a row, 2 heads, 3 head_dim, 4 dims that turn, 5 table f32[rows, 2, dim]: per row of the batch the
    cosines of its position, then the sines with the sign their partner gets, 6 halves (0: adjacent pairs), 7 out.
    """
    head_dim, dim = arg(op, 3), arg(op, 4)
    table = arg(op, 5) + chunk * dim * 8
    for h in range(arg(op, 2)):
        at = chunk * arg(op, 1) + 4 * h * head_dim
        x, out = arg(op, 0) + at, arg(op, 7) + at
        if arg(op, 6) != 0:
            _rotate_halves(x, out, table, dim)
        else:
            _rotate_adjacent(x, out, table, dim)
        if x != out:  # the tail of a head does not turn
            for i in range(dim, head_dim):
                store_f32(out + 4 * i, load_f32(x + 4 * i))


def join_heads(op, ctx, thread, chunk):
    """Parts of one row's heads side by side.

    0 out, 1 bytes of a row, 2 bytes of a head, 3 heads; then of each of two parts: 4 its first value, 5 bytes of a row, 6
    bytes from head to head, 7 values of a head (0: no such part).
    """
    for h in range(arg(op, 3)):
        to = arg(op, 0) + chunk * arg(op, 1) + h * arg(op, 2)
        for i in range(4, 12, 4):
            x, n = arg(op, i) + chunk * arg(op, i + 1) + h * arg(op, i + 2), arg(op, i + 3)
            for d in range(0, 4 * n, 32):
                store_f32x8(to + d, load_f32x8(x + d))
            to += 4 * n


KERNELS = {f.__name__: f for f in (norm, layer_norm, scale, quantise, add_rows, gather, join_heads, rope)}
