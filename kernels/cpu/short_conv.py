"""Convolutions over a few tokens, each channel by itself: the smallest of the ops with a state.

A chunk is some channels of one run, all its tokens: so it alone reads and writes their part of the records. A token's sum
goes over its taps in order, oldest first, with one fused multiply-add each, whether an input lies in the batch or in the
record: the same bits for any cut. Meaning and the state's layout: `short_conv` in ../ops.py. Runs: runs.py.
"""

from __future__ import annotations

import numpy as np

from .simd import arg, fma, inline, load_f32x32, load_i64, operand, splat32, store_f32x32
from .slots import RUN_FIRST, RUN_READ, RUN_TOKENS, RUN_WORDS, RUNS, SAVES


@inline
def _input(x, stride, t, state, row_bytes, taps):
    """Where the input of token t of the run lies; of one before the run, in the record."""
    return x + t * stride if t >= 0 else state + (t + taps - 1) * row_bytes


def short_conv(op, ctx, thread, chunk):
    """All tokens of one run, some groups of 32 channels.

    0 x, 1 bytes of a row, 2 weight f32[taps, 32 * groups], 3 bias (0: none), 4 taps, 5 groups of a row, 6 groups of a chunk,
    7 where this layer begins in a record, 8 out, 9 bytes of a row.
    """
    stride, taps, groups, some = arg(op, 1), arg(op, 4), arg(op, 5), arg(op, 6)
    blocks, row_bytes = (groups + some - 1) // some, 128 * groups
    run = operand(ctx, RUNS) + chunk // blocks * 8 * RUN_WORDS
    first, begin = operand(run, RUN_FIRST), chunk % blocks * some
    for g in range(begin, min(groups, begin + some)):
        x, state = arg(op, 0) + first * stride + 128 * g, operand(run, RUN_READ) + arg(op, 7) + 128 * g
        for t in range(operand(run, RUN_TOKENS)):
            acc = splat32(np.float32(0))
            if arg(op, 3) != 0:
                acc = load_f32x32(arg(op, 3) + 128 * g)
            for j in range(taps):
                v = load_f32x32(_input(x, stride, t - taps + 1 + j, state, row_bytes, taps))
                acc = fma(v, load_f32x32(arg(op, 2) + j * row_bytes + 128 * g), acc)
            store_f32x32(arg(op, 8) + (first + t) * arg(op, 9) + 128 * g, acc)
            save = load_i64(operand(ctx, SAVES) + 8 * (first + t))
            if save != 0:
                for j in range(taps - 1):
                    v = load_f32x32(_input(x, stride, t - taps + 2 + j, state, row_bytes, taps))
                    store_f32x32(save + arg(op, 7) + j * row_bytes + 128 * g, v)


KERNELS = {f.__name__: f for f in (short_conv,)}
