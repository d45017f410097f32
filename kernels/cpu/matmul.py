"""Matrix kernels: what is the same for every format. A tile kernel of the format does eight rows times a few tokens.

One loop serves decode, small batches and prefill: row groups outside, tiles of tokens inside, so that eight rows stay in
L1 while all tokens of a block pass, and a block's activations stay in L2. Raw weights are packed eight rows at a time
into the thread's own scratch first, so raw and packed give the same bits. Knows no format.
"""

from __future__ import annotations

from .simd import (
    arg,
    arg_f32,
    call_expand,
    call_pack,
    call_tile,
    call_unpack,
    inline,
    load_f32x32,
    load_i64,
    mul,
    operand,
    splat32,
    store_f32x32,
)
from .slots import SCRATCH, SCRATCH_BYTES

AHEAD = 1024
"""Bytes that a tile alone prefetches ahead: less loses, 1024 to 2048 are equal, 4096 is worse (Zen 3)."""


@inline
def _ahead(is_last, tiles, group_bytes):
    """How far ahead of its weights a tile prefetches: the last of several brings the next eight rows."""
    if not is_last:
        return 0
    return AHEAD if tiles == 1 else group_bytes


def matmul(op, ctx, thread, chunk):
    """y = x W^T, or y += x W^T, for some groups of eight rows.

    0 weights, 1 x, 2 y, 3 chunks, 4 units of a row, 5 where chunks begin: i64[chunks + 1] row groups, 6 flags (1: add to y,
    PAIRS), 7 bytes of a packed row group, 8 bytes of a row of y, 9 tile kernel, 10 bytes of a tile of x, 11 tokens of a tile,
    12 tiles of a block, 13 context word with the number of tokens, 14 pack kernel (0: packed), 15 bytes of a raw row, 16 rows.
    """
    w, x, y, stride = arg(op, 0), arg(op, 1), arg(op, 2), arg(op, 8)
    tile, x_tile, tokens, block = arg(op, 9), arg(op, 10), arg(op, 11), arg(op, 12)
    tiles = (operand(ctx, arg(op, 13)) + tokens - 1) // tokens
    scratch = operand(ctx, SCRATCH) + thread * operand(ctx, SCRATCH_BYTES)
    first, last = operand(arg(op, 5), chunk), operand(arg(op, 5), chunk + 1)
    for t0 in range(0, tiles, block):
        for g in range(first, last):
            p = w + g * arg(op, 7)
            if arg(op, 14) != 0:
                p = scratch
                rows = min(8, arg(op, 16) - 8 * g)
                call_pack(arg(op, 14), w + 8 * g * arg(op, 15), arg(op, 15), rows, p, arg(op, 4))
            end = min(t0 + block, tiles)
            for t in range(t0, end):
                to, ahead = y + t * tokens * stride + 32 * g, _ahead(t == end - 1, end - t0, arg(op, 7))
                call_tile(tile, p, x + t * x_tile, arg(op, 4), to, stride, arg(op, 6), ahead)


def matmul_panels(op, ctx, thread, chunk):
    """The same for many tokens: sixteen rows at a time, unpacked once for all tokens of a block (see panels.py).

    0-16 as in matmul, chunks being of pairs of row groups, and 9 a panel kernel. 17 unpack kernel (0: the panel kernel reads
    packed rows where they lie), 18 bytes of a panel, 19 of a unit in it.
    """
    w, x, y, stride, units, size = arg(op, 0), arg(op, 1), arg(op, 2), arg(op, 8), arg(op, 4), arg(op, 7)
    kernel, x_tile, tokens, block = arg(op, 9), arg(op, 10), arg(op, 11), arg(op, 12)
    tiles, groups = (operand(ctx, arg(op, 13)) + tokens - 1) // tokens, (arg(op, 16) + 7) // 8
    panel = operand(ctx, SCRATCH) + thread * operand(ctx, SCRATCH_BYTES)
    first, last = operand(arg(op, 5), chunk), operand(arg(op, 5), chunk + 1)
    for t0 in range(0, tiles, block):
        for g in range(first, last, 2):
            gap = size if g + 1 < groups else 0  # the last group of an odd number is its own partner
            p = w + g * size
            if arg(op, 14) != 0:
                p = panel + arg(op, 18)
                for i in range(g, min(g + 2, groups)):
                    rows, to = min(8, arg(op, 16) - 8 * i), p + (i - g) * size
                    call_pack(arg(op, 14), w + 8 * i * arg(op, 15), arg(op, 15), rows, to, units)
            if arg(op, 17) != 0:
                call_unpack(arg(op, 17), p, panel, units)
                call_unpack(arg(op, 17), p + gap, panel + arg(op, 19), units)
                p = panel
            for t in range(t0, min(t0 + block, tiles)):
                to = y + t * tokens * stride + 32 * g
                call_tile(kernel, p, x + t * x_tile, units, to, stride, arg(op, 6), gap)


def embed(op, ctx, thread, chunk):
    """One token's row of a table, times a factor.

    0 table, 1 units of a row, 2 bytes of a packed row group, 3 out, 4 bytes of a row of out, 5 factor, 6 expand kernel,
    7 pack kernel (0: packed), 8 bytes of a raw row, 9 rows, 10 word of the context that has the address of the rows' numbers.
    """
    token, out = load_i64(operand(ctx, arg(op, 10)) + 8 * chunk), arg(op, 3) + chunk * arg(op, 4)
    group, p = token // 8, arg(op, 0) + token // 8 * arg(op, 2)
    if arg(op, 7) != 0:
        p = operand(ctx, SCRATCH) + thread * operand(ctx, SCRATCH_BYTES)
        rows = min(8, arg(op, 9) - 8 * group)
        call_pack(arg(op, 7), arg(op, 0) + 8 * group * arg(op, 8), arg(op, 8), rows, p, arg(op, 1))
    call_expand(arg(op, 6), p, token % 8, out, arg(op, 1))
    for at in range(out, out + arg(op, 4), 128):
        store_f32x32(at, mul(load_f32x32(at), splat32(arg_f32(op, 5))))


def pack_matrix(op, ctx, thread, chunk):
    """Pack some groups of eight rows.

    0 raw rows, 1 bytes of one, 2 rows, 3 packed, 4 units of a row, 5 bytes of a packed row group, 6 row groups of a chunk,
    7 pack kernel.
    """
    src, row_bytes, rows, dst = arg(op, 0), arg(op, 1), arg(op, 2), arg(op, 3)
    first = chunk * arg(op, 6)
    for g in range(first, min((rows + 7) // 8, first + arg(op, 6))):
        call_pack(
            arg(op, 7), src + 8 * g * row_bytes, row_bytes, min(8, rows - 8 * g), dst + g * arg(op, 5), arg(op, 4)
        )


KERNELS = {f.__name__: f for f in (matmul, matmul_panels, embed, pack_matrix)}
