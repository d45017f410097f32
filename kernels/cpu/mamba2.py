"""The layer of Mamba 2 (Dao, Gu 2024, arXiv:2405.21060): one head's state, 32 columns at a time, token by token.

32 columns of a state are state_size rows of 32 float32, which stay in the first cache while the tokens pass. Each column is a
lane and its rows are added in order, so the bits depend on the tokens alone. Next hop: `slots.py` for runs and records.
"""

from __future__ import annotations

import numpy as np

from .elementwise import _emit
from .gated_delta import exp_of, next_save, softplus_of
from .simd import arg, fma, inline, keep, load_f32, load_f32x32, mul, operand, splat32, store_f32x32
from .slots import RUN_FIRST, RUN_READ, RUN_TOKENS, RUN_WORDS, RUNS, SAVES


@inline
def _token(x, b, c, n, decay, source, target):
    """Move 32 columns of a state past one token: S becomes decay S + b x. -> c S."""
    read = splat32(np.float32(0))
    for i in range(n):
        row = mul(load_f32x32(source + 128 * i), splat32(decay))
        row = fma(splat32(load_f32(b + 4 * i)), x, row)
        store_f32x32(target + 128 * i, row)
        read = fma(row, splat32(load_f32(c + 4 * i)), read)
    return read


def mamba2(op, ctx, thread, chunk):
    """32 columns of one head's state, over all tokens of one run.

    0 xbc, 1 bytes of a row, 2 dt, 3 bytes of a row, 4 a, 5 d, 6 dt_bias, 7 heads, 8 head_dim, 9 state_size, 10 groups,
    11 from a record's start to this layer, 12.. out.
    """
    heads, width, n, groups = arg(op, 7), arg(op, 8), arg(op, 9), arg(op, 10)
    blocks = (width + 31) // 32
    run = operand(ctx, RUNS) + chunk // (heads * blocks) * (8 * RUN_WORDS)
    head, block = chunk % (heads * blocks) // blocks, chunk % blocks
    group = head // (heads // groups)
    a, d = load_f32(arg(op, 4) + 4 * head), load_f32(arg(op, 5) + 4 * head)
    bias = load_f32(arg(op, 6) + 4 * head)
    offset, count = 4 * (head * width + 32 * block), width - 32 * block
    tile = arg(op, 11) + (head * blocks + block) * n * 128
    saves, source, target = operand(ctx, SAVES), operand(run, RUN_READ) + tile, np.int64(0)
    for t in range(operand(run, RUN_FIRST), operand(run, RUN_FIRST) + operand(run, RUN_TOKENS)):
        if target == 0:
            target = next_save(saves, t) + tile
        row = arg(op, 0) + t * arg(op, 1)
        x = keep(load_f32x32(row + offset), 0, count, splat32(np.float32(0)))
        b = row + 4 * (heads * width + group * n)
        step = softplus_of(load_f32(arg(op, 2) + t * arg(op, 3) + 4 * head) + bias)
        read = _token(mul(x, splat32(step)), b, b + 4 * groups * n, n, exp_of(a * step), source, target)
        _emit(op, 12, ctx, thread, t, offset, fma(x, splat32(d), read), count)
        source = target
        if operand(saves, t) != 0:
            target = np.int64(0)


KERNELS = {"mamba2": mamba2}
