"""Kernels of a mixture of experts: the choice, tokens in order of their experts, matrices of the chosen ones, the sum.

Every row of activations here belongs to one token and one of its experts. With one token they lie in the order of its choice.
With more they are sorted by expert, so that each used expert's weights are read once, and no page of an unused one is touched;
a table says what each row is. A row's result depends on neither: tiles of one, two and four rows and panels give the same
bits, and a token's rows are summed in the order of its choice.

An expert's rows of int8 activations are tiles of four, then one of two, then one of one: no row is padding.
Next hop: `lower_experts.py` writes the records.
"""

from __future__ import annotations

import numpy as np

from .activations import _activate
from .elementwise import _emit, quantise_lane
from .matmul import AHEAD
from .simd import (
    add,
    arg,
    arg_f32,
    call_pack,
    call_tile,
    call_unpack,
    div,
    exp,
    fill,
    fma,
    inline,
    keep,
    load_f32,
    load_f32x32,
    load_i64,
    load_u32,
    maximum,
    minimum,
    mul,
    operand,
    reduce_add,
    splat32,
    store_f32,
    store_f32x32,
    store_i64,
    store_u32,
    sub,
)
from .slots import (
    GROUP_BYTES,
    QUANTISE,
    ROW_COUNT,
    ROW_EXPERT,
    ROW_FIRST,
    ROW_TOKEN,
    ROW_WORDS,
    SCRATCH,
    SCRATCH_BYTES,
    SIGMOID_SCORES,
    SOFTMAX_OF_USED,
    SOFTMAX_SCORES,
    SWIGLU_CLAMPED,
)

_NOTHING = np.float32(-np.inf)
_TAKEN = np.float32(np.nan)
_SMALLEST_SUM = np.float32(2**-14)


# ---- the choice ----
@inline
def _softmax(x, out, n):
    """The softmax of f32[n]; rooms are whole vectors."""
    top = _NOTHING
    for i in range(n):
        top = max(top, load_f32(x + 4 * i))
    zero = splat32(np.float32(0))
    total = zero
    for i in range(0, n, 32):
        v = keep(exp(sub(load_f32x32(x + 4 * i), splat32(top))), 0, n - i, zero)
        store_f32x32(out + 4 * i, v)
        total = add(total, v)
    whole = splat32(reduce_add(total))
    for i in range(0, n, 32):
        store_f32x32(out + 4 * i, div(load_f32x32(out + 4 * i), whole))


@inline
def _best(ranking, first, end):
    """The place of the largest number, the first among equals; -1 if none is a number."""
    best, top = -1, _NOTHING
    for i in range(first, end):
        v = load_f32(ranking + 4 * i)
        if v > top or (best < 0 and v == v):
            best, top = i, v
    return best


@inline
def _leave_out_groups(ranking, n, groups, used, of_group, spare):
    """Take the experts of all but the best groups out of the ranking."""
    size = n // groups
    for g in range(groups):
        total = np.float32(0)
        for i in range(size):
            store_f32(spare + 4 * i, load_f32(ranking + 4 * (g * size + i)))
        for _ in range(min(of_group, size)):
            best = max(0, _best(spare, 0, size))
            total += load_f32(spare + 4 * best)
            store_f32(spare + 4 * best, _TAKEN)
        store_f32(spare + 4 * (n + g), total)
    for _ in range(used):
        best = _best(spare, n, n + groups)
        if best >= 0:
            store_f32(spare + 4 * best, _TAKEN)
    for g in range(groups):
        left = load_f32(spare + 4 * (n + g))
        if left == left:
            for i in range(size):
                store_f32(ranking + 4 * (g * size + i), _NOTHING)


def route(op, ctx, thread, chunk):
    """Choose the experts of one token.

    0 logits, 1 bytes of a row, 2 experts, 3 used, 4 out: i32[used] numbers, f32[used] weights, 5 bytes of a row of out,
    6 kind of scores, 7 normalised, 8 scale, 9 bias (0: none), 10 groups, 11 groups used, 12 scores that make a group's,
    13 scales of the weights of each expert (0: none).
    Scratch: four rooms for as many numbers as experts, and whole vectors.
    """
    n, used, kind = arg(op, 2), arg(op, 3), arg(op, 6)
    logits, out = arg(op, 0) + chunk * arg(op, 1), arg(op, 4) + chunk * arg(op, 5)
    scores = operand(ctx, SCRATCH) + thread * operand(ctx, SCRATCH_BYTES)
    room = (n + 31) // 32 * 128
    ranking, spare = scores + room, scores + 2 * room
    if kind == SOFTMAX_SCORES:
        _softmax(logits, scores, n)
    for i in range(0, n, 32):
        v = load_f32x32(logits + 4 * i)
        if kind == SOFTMAX_SCORES:
            v = load_f32x32(scores + 4 * i)
        elif kind == SIGMOID_SCORES:
            v = div(fill(v, 1.0), add(fill(v, 1.0), exp(sub(fill(v, 0.0), v))))
        store_f32x32(scores + 4 * i, v)
        if arg(op, 9) != 0:
            v = add(v, load_f32x32(arg(op, 9) + 4 * i))
        store_f32x32(ranking + 4 * i, v)
    if arg(op, 10) > 1:
        _leave_out_groups(ranking, n, arg(op, 10), arg(op, 11), arg(op, 12), spare)
    for j in range(used):
        best = _best(ranking, 0, n)
        if best < 0:  # numbers that are none: any expert will do
            best = j
        store_f32(ranking + 4 * best, _TAKEN)
        store_u32(out + 4 * j, best)
        store_f32(spare + 4 * j, load_f32(scores + 4 * best))
    if kind == SOFTMAX_OF_USED:
        _softmax(spare, spare, used)
    total = np.float32(0)
    for j in range(used):
        total += load_f32(spare + 4 * j)
    by = np.float32(1)
    if arg(op, 7) != 0:
        by = max(total, _SMALLEST_SUM)
    for j in range(used):
        weight = load_f32(spare + 4 * j) / by * arg_f32(op, 8)
        if arg(op, 13) != 0:
            weight *= load_f32(arg(op, 13) + 4 * load_u32(out + 4 * j))
        store_f32(out + 4 * (used + j), weight)


# ---- which row is whose ----
def sort_rows(op, ctx, thread, chunk):
    """Sort the rows of all tokens by expert.

    0 routed, 1 bytes of a row, 2 used, 3 experts, 4 context word with the number of tokens, 5 slots, 6 rows, 7 places: i64 row
    of each token's each choice, 8 counts: i64[experts]. The first slot holds the number of the others: the used experts.
    """
    routed, used, experts = arg(op, 0), arg(op, 2), arg(op, 3)
    slots, rows, places, counts = arg(op, 5), arg(op, 6), arg(op, 7), arg(op, 8)
    tokens = operand(ctx, arg(op, 4))
    for e in range(experts):
        store_i64(counts + 8 * e, 0)
    for t in range(tokens):
        for j in range(used):
            at = counts + 8 * load_u32(routed + t * arg(op, 1) + 4 * j)
            store_i64(at, load_i64(at) + 1)
    first, slot = 0, slots + 8 * ROW_WORDS
    for e in range(experts):
        count = load_i64(counts + 8 * e)
        if count > 0:
            store_i64(slot + 8 * ROW_EXPERT, e)
            store_i64(slot + 8 * ROW_FIRST, first)
            store_i64(slot + 8 * ROW_COUNT, count)
            slot += 8 * ROW_WORDS
            for i in range(first, first + count):
                row = rows + 8 * ROW_WORDS * i
                store_i64(row + 8 * ROW_EXPERT, e)
                store_i64(row + 8 * ROW_FIRST, first)
                store_i64(row + 8 * ROW_COUNT, count)
        store_i64(counts + 8 * e, first)
        first += count
    store_i64(slots, (slot - slots) // (8 * ROW_WORDS) - 1)
    for t in range(tokens):
        for j in range(used):
            at = counts + 8 * load_u32(routed + t * arg(op, 1) + 4 * j)
            place = load_i64(at)
            store_i64(at, place + 1)
            store_i64(rows + 8 * (ROW_WORDS * place + ROW_TOKEN), t)
            store_i64(places + 8 * (t * used + j), place)


@inline
def _tile_size(i, count):
    """Rows of the tile that row i of `count` lies in, and the tile's first row."""
    whole = count // 4 * 4
    if i < whole:
        return 4, i // 4 * 4
    if count - whole >= 2 and i < whole + 2:
        return 2, whole
    return 1, i


@inline
def _lane(out, groups, first, i, count):
    """Where row i of an expert's `count` begins in tiles that begin with row `first`, and how many rows its tile has."""
    size, begin = _tile_size(i, count)
    return out + (first + begin) * groups * GROUP_BYTES + 4 * (i - begin), size


def gather_rows(op, ctx, thread, chunk):
    """Copy the activations of one sorted row's token.

    0 x, 1 groups of a row (float32: 0), 2 rows of a tile of x, 3 out, 4 rows, 5 parts of a token, 6 bytes of a float32 row.
    """
    x, groups, tile, out, parts = arg(op, 0), arg(op, 1), arg(op, 2), arg(op, 3), arg(op, 5)
    row = arg(op, 4) + 8 * ROW_WORDS * chunk
    token, first, count = operand(row, ROW_TOKEN), operand(row, ROW_FIRST), operand(row, ROW_COUNT)
    if groups == 0:
        for at in range(0, arg(op, 6), 128):
            store_f32x32(out + chunk * arg(op, 6) + at, load_f32x32(x + token * arg(op, 6) + at))
        return
    for part in range(parts):
        source = token * parts + part
        p = x + source // tile * tile * groups * GROUP_BYTES + 4 * (source % tile)
        to, size = _lane(out, groups, first * parts, (chunk - first) * parts + part, count * parts)
        for _ in range(groups):
            for word in range(GROUP_BYTES // 4):
                store_u32(to + 4 * size * word, load_u32(p + 4 * tile * word))
            p, to = p + tile * GROUP_BYTES, to + size * GROUP_BYTES


# ---- matrices ----
@inline
def _rows_times(op, p, g, x, y, rows, gap):
    """Eight weight rows at p, row group g, times `rows` rows of activations: fours, then two, then one."""
    done, row_bytes, parts = 0, arg(op, 11), arg(op, 12)
    while done < rows:
        left = rows - done
        size = 4 if left >= 4 else 2 if left >= 2 else 1
        tile = arg(op, 8 + size // 2)
        ahead = 0
        if left == size:
            ahead = AHEAD if rows == size else gap
        to = y + done // parts * arg(op, 7) + 32 * g
        call_tile(tile, p, x + done * row_bytes, arg(op, 4), to, arg(op, 7), arg(op, 6), ahead)
        done += size


@inline
def _panel_times(op, p, g, x, y, rows, panel, gap):
    """Sixteen weight rows at p, from row group g on, times `rows` rows of activations, of which a last few go without a panel."""
    units, row_bytes, parts = arg(op, 4), arg(op, 11), arg(op, 12)
    call_unpack(arg(op, 22), p, panel, units)
    call_unpack(arg(op, 22), p + gap, panel + arg(op, 24), units)
    whole = rows // 4 * 4
    for done in range(0, whole, 4):
        to = y + done // parts * arg(op, 7) + 32 * g
        call_tile(arg(op, 21), panel, x + done * row_bytes, units, to, arg(op, 7), arg(op, 6), gap)
    if whole < rows:
        x, y = x + whole * row_bytes, y + whole // parts * arg(op, 7)
        _rows_times(op, p, g, x, y, rows - whole, 0)
        if gap != 0:
            _rows_times(op, p + gap, g + 1, x, y, rows - whole, 0)


def matmul_experts(op, ctx, thread, chunk):
    """y = x W_e^T for some groups of eight rows of the matrix of one expert, times all rows of activations that are its own.

    0 weights, 1 x, 2 y, 3 chunks of an expert, 4 units of a row, 5 where they begin: i64[chunks + 1] row groups, 6 flags (PAIRS),
    7 bytes of a row of y, 8-10 kernels of tiles of one, two and four rows, 11 bytes of a row of x, 12 parts of a token,
    13 pack kernel (0: packed), 14 bytes of a raw row, 15 bytes of a packed row group, 16 bytes of an expert,
    17 table of slots (0: one token), 18 its numbers of experts, 19 rows of x from one of its experts to the next,
    20 rows of x from which a panel pays (0: never), 21 panel kernel, 22 unpack kernel, 23 bytes of a panel, 24 of a unit in it,
    25 rows of a block.
    """
    slot, part = chunk // arg(op, 3), chunk % arg(op, 3)
    parts = arg(op, 12)
    expert, at, first_row, rows = 0, 0, slot, parts
    if arg(op, 17) == 0:
        expert, at = load_u32(arg(op, 18) + 4 * slot), slot * arg(op, 19)
    else:
        if slot >= operand(arg(op, 17), 0):
            return
        row = arg(op, 17) + 8 * ROW_WORDS * (slot + 1)
        expert, first_row = operand(row, ROW_EXPERT), operand(row, ROW_FIRST)
        at, rows = first_row * parts, operand(row, ROW_COUNT) * parts
    w, size = arg(op, 0) + expert * arg(op, 16), arg(op, 15)
    x, y = arg(op, 1) + at * arg(op, 11), arg(op, 2) + first_row * arg(op, 7)
    room = operand(ctx, SCRATCH) + thread * operand(ctx, SCRATCH_BYTES)
    begin, end = operand(arg(op, 5), part), operand(arg(op, 5), part + 1)
    block, panels = arg(op, 25), arg(op, 20) != 0 and rows >= arg(op, 20)
    step = 2 if panels else 1
    for r0 in range(0, rows, block):
        some = min(block, rows - r0)
        bx, by = x + r0 * arg(op, 11), y + r0 // parts * arg(op, 7)
        for g in range(begin, end, step):
            both = min(step, end - g)
            p = w + g * size
            if arg(op, 13) != 0:
                p = room + arg(op, 23)
                for i in range(both):
                    call_pack(arg(op, 13), w + 8 * (g + i) * arg(op, 14), arg(op, 14), 8, p + i * size, arg(op, 4))
            if panels:
                _panel_times(op, p, g, bx, by, some, room, size if both == 2 else 0)
            else:
                _rows_times(op, p, g, bx, by, some, size)


# ---- between and behind them ----
@inline
def _gated(kind, gate, up):
    if kind == SWIGLU_CLAMPED:
        g, u = minimum(gate, fill(gate, 7.0)), maximum(minimum(up, fill(up, 7.0)), fill(up, -7.0))
        e = exp(mul(g, fill(g, -1.702)))
        return mul(div(g, add(fill(g, 1.0), e)), add(u, fill(u, 1.0)))
    return mul(_activate(kind, gate), up)


def gated_experts(op, ctx, thread, chunk):
    """activation(gate) * up for some groups of 32 of one row, with the biases of its expert.

    0 gate, 1 up, 2 bytes of a row, 3 groups of a row, 4 groups of a chunk, 5 activation, 6 rows (0: one token), 7 its numbers of
    experts, 8 bias of gate (0: none), 9 bias of up, 10 values of a row of them, 11 out, 12 bytes of a row of out, 13 how,
    14 parts.
    """
    groups, some, out, parts = arg(op, 3), arg(op, 4), arg(op, 11), arg(op, 14)
    blocks = (groups + some - 1) // some
    row, begin = chunk // blocks, chunk % blocks * some
    expert, first, count = 0, row, 1
    if arg(op, 6) == 0:
        expert = load_u32(arg(op, 7) + 4 * row)
    else:
        info = arg(op, 6) + 8 * ROW_WORDS * row
        expert, first, count = operand(info, ROW_EXPERT), operand(info, ROW_FIRST), operand(info, ROW_COUNT)
    for g in range(begin, min(groups, begin + some)):
        at = row * arg(op, 2) + 128 * g
        gate, up = load_f32x32(arg(op, 0) + at), load_f32x32(arg(op, 1) + at)
        if arg(op, 8) != 0:
            of = 4 * expert * arg(op, 10) + 128 * g
            gate, up = add(gate, load_f32x32(arg(op, 8) + of)), add(up, load_f32x32(arg(op, 9) + of))
        v = _gated(arg(op, 5), gate, up)
        if arg(op, 13) == QUANTISE:
            for part in range(parts):
                i = (row - first) * parts + part
                lane, size = _lane(out, groups, first * parts, i, count * parts)
                v = quantise_lane(lane + g * size * GROUP_BYTES, size, v)
        else:
            store_f32x32(out + row * arg(op, 12) + 128 * g, v)


def sum_experts(op, ctx, thread, chunk):
    """The weighted sum of one token's rows, best expert first, for some groups of 32.

    0 y, 1 bytes of a row, 2 groups of a row, 3 groups of a chunk, 4 routed, 5 bytes of a row of it, 6 used, 7 places (0: one
    token), 8 bias (0: none), 9 values of a row of it, 10.. out.
    """
    groups, some, used = arg(op, 2), arg(op, 3), arg(op, 6)
    blocks = (groups + some - 1) // some
    token, begin = chunk // blocks, chunk % blocks * some
    routed = arg(op, 4) + token * arg(op, 5)
    for g in range(begin, min(groups, begin + some)):
        total = splat32(np.float32(0))
        for j in range(used):
            row = j
            if arg(op, 7) != 0:
                row = operand(arg(op, 7), token * used + j)
            v = load_f32x32(arg(op, 0) + row * arg(op, 1) + 128 * g)
            if arg(op, 8) != 0:
                expert = load_u32(routed + 4 * j)
                v = add(v, load_f32x32(arg(op, 8) + 4 * expert * arg(op, 9) + 128 * g))
            total = fma(splat32(load_f32(routed + 4 * (used + j))), v, total)
        _emit(op, 10, ctx, thread, token, 128 * g, total, 32)


KERNELS = {f.__name__: f for f in (route, sort_rows, gather_rows, matmul_experts, gated_experts, sum_experts)}
