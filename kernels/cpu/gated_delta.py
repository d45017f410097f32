"""The gated delta rule (Yang et al. 2024, arXiv:2412.06464): one head's state, 32 columns at a time, token by token.

32 columns of a state are key_dim rows of 32 float32, which stay in the first cache while the tokens pass. Each column is a lane
and its rows are added in order, so the bits depend on the tokens alone. Next hop: `slots.py` for runs and records.
"""

from __future__ import annotations

import numpy as np

from .activations import _softplus
from .elementwise import _emit
from .simd import (
    add,
    arg,
    div,
    exp,
    fill,
    first_lane,
    fma,
    inline,
    keep,
    load_f32,
    load_f32x32,
    mul,
    operand,
    reduce_add,
    splat8,
    splat32,
    sqrt,
    store_f32x32,
    sub,
)
from .slots import RUN_FIRST, RUN_READ, RUN_TOKENS, RUN_WORDS, RUNS, SAVES

_LENGTH_EPSILON = np.float32(1e-6)  # as the op has it


@inline
def softplus_of(x):
    """log(1 + exp(x)) of one number."""
    v = splat8(x)
    size = splat8(abs(x))
    return first_lane(_softplus(v, exp(sub(fill(v, 0.0), size))))


@inline
def exp_of(x):
    """e**x of one number."""
    return first_lane(exp(splat8(x)))


@inline
def _sigmoid_of(x):
    v = splat8(x)
    return first_lane(div(fill(v, 1.0), add(fill(v, 1.0), exp(sub(fill(v, 0.0), v)))))


@inline
def next_save(saves, token):
    """The record that gets the state after this token, or else after the first one behind it that has a record."""
    while operand(saves, token) == 0:
        token += 1
    return operand(saves, token)


@inline
def _dot(x, y, n):
    zero = splat32(np.float32(0))
    total = zero
    for g in range(0, n, 32):
        u, v = keep(load_f32x32(x + 4 * g), 0, n - g, zero), keep(load_f32x32(y + 4 * g), 0, n - g, zero)
        total = fma(u, v, total)
    return reduce_add(total)


@inline
def _token(q, k, v, n, decay, beta, source, target):
    """Move 32 columns of a state past one token. -> what the token reads, but for the factor 1 / sqrt(key_dim).

    q, k: addresses of f32[n], of any length. With k = K / |K|: the state S becomes decay S + k d, d = beta (v - decay k S); what
    q reads of it is decay q S + (q k) d, so that one pass serves both sums.
    """
    known = read = splat32(np.float32(0))
    for i in range(n):
        row = load_f32x32(source + 128 * i)
        known = fma(row, splat32(load_f32(k + 4 * i)), known)
        read = fma(row, splat32(load_f32(q + 4 * i)), read)
    by_k = np.float32(1) / sqrt(_dot(k, k, n) + _LENGTH_EPSILON)
    by_q = np.float32(1) / sqrt(_dot(q, q, n) + _LENGTH_EPSILON)
    d = mul(sub(v, mul(known, splat32(decay * by_k))), splat32(beta * by_k))
    for i in range(n):
        row = mul(load_f32x32(source + 128 * i), splat32(decay))
        store_f32x32(target + 128 * i, fma(splat32(load_f32(k + 4 * i)), d, row))
    return mul(fma(d, splat32(_dot(q, k, n)), mul(read, splat32(decay))), splat32(by_q))


def gated_delta(op, ctx, thread, chunk):
    """32 columns of one value head's state, over all tokens of one run.

    0 qkv, 1 bytes of a row, 2 beta, 3 alpha, 4 bytes of a row of beta, 5 of alpha, 6 heads that lie side by side in these rows,
    7 from their first to that of the next ones, 8 a, 9 dt_bias, 10 key heads, 11 value heads, 12 key_dim, 13 value_dim,
    14 adjacent, 15 from a record's start to this layer, 16.. out.
    """
    key_heads, heads, n, width = arg(op, 10), arg(op, 11), arg(op, 12), arg(op, 13)
    blocks = (width + 31) // 32
    run = operand(ctx, RUNS) + chunk // (heads * blocks) * (8 * RUN_WORDS)
    head, block = chunk % (heads * blocks) // blocks, chunk % blocks
    shared = head // (heads // key_heads) if arg(op, 14) != 0 else head % key_heads
    column = 4 * (head // arg(op, 6) * arg(op, 7) + head % arg(op, 6))
    a, bias = load_f32(arg(op, 8) + 4 * head), load_f32(arg(op, 9) + 4 * head)
    offset, count = 4 * (head * width + 32 * block), width - 32 * block
    tile = arg(op, 15) + (head * blocks + block) * n * 128
    scale = np.float32(1) / sqrt(np.float32(n))
    saves, source, target = operand(ctx, SAVES), operand(run, RUN_READ) + tile, np.int64(0)
    for t in range(operand(run, RUN_FIRST), operand(run, RUN_FIRST) + operand(run, RUN_TOKENS)):
        if target == 0:
            target = next_save(saves, t) + tile
        row = arg(op, 0) + t * arg(op, 1)
        q, k = row + 4 * shared * n, row + 4 * (key_heads + shared) * n
        v = keep(load_f32x32(row + 8 * key_heads * n + offset), 0, count, splat32(np.float32(0)))
        decay = exp_of(a * softplus_of(load_f32(arg(op, 3) + t * arg(op, 5) + column) + bias))
        beta = _sigmoid_of(load_f32(arg(op, 2) + t * arg(op, 4) + column))
        y = mul(_token(q, k, v, n, decay, beta, source, target), splat32(scale))
        _emit(op, 16, ctx, thread, t, offset, y, count)
        source = target
        if operand(saves, t) != 0:
            target = np.int64(0)


KERNELS = {"gated_delta": gated_delta}
