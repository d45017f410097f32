"""Kernels that look through a row of logits for the sampler: peaks, what reaches a bound, weights, mass by depth, moments.

A row is f32[V] anywhere in memory. Its whole vectors of 32 are read where they lie; what is left over comes from a copy, filled
up with -inf, so nothing behind a row is read. 64 vectors are a block, and one lane of a block a column. One chunk is a block,
half a microsecond. Order of arithmetic is fixed: 32 lanes per block, then one tree.

The row of every kernel: 0 x, 1 whole vectors, 2 the copy f32[32]. Next hop: `vocabulary.py` calls them.
"""

from __future__ import annotations

import numpy as np

from .scan_words import count_bits, lowest_bit, reaching, taint, where
from .simd import (
    add,
    arg,
    arg_f32,
    fma,
    inline,
    load_f32,
    load_f32x32,
    maximum,
    mul,
    reduce_add,
    splat32,
    store_f32,
    store_f32x32,
    store_i64,
    sub,
)
from .softmax_words import exp2_within

VECTORS = 64
"""Vectors of a block."""
_LOWEST = np.float32(-3.4028234663852886e38)
_LEAST_POWER = np.float32(-125.0)  # 2**x of what is less counts as 0: forbidden ids must have no weight at all


@inline
def _vector(op, i):
    whole = arg(op, 1)
    return load_f32x32(arg(op, 0) + 128 * i if i < whole else arg(op, 2))


@inline
def _end(op, block):
    """One behind the last vector of a block."""
    return min(VECTORS * (block + 1), arg(op, 1) + 1)


def scan_peaks(op, ctx, thread, block):
    """The largest of every column, NaN where one is. 3 f32[blocks, 32]."""
    peak, tainted = splat32(np.float32(-np.inf)), splat32(np.float32(0))
    first, end = VECTORS * block, _end(op, block)
    for i in range(first, end - 1, 2):
        v, w = _vector(op, i), _vector(op, i + 1)
        peak = maximum(v, maximum(w, peak))
        tainted = taint(tainted, v, w)
    if (end - first) & 1:
        v = _vector(op, end - 1)
        peak, tainted = maximum(v, peak), taint(tainted, v, v)
    store_f32x32(arg(op, 3) + 128 * block, taint(peak, tainted, tainted))


def scan_best(op, ctx, thread, chunk):
    """The largest value, NaN if one is, and the lowest id that has it: one chunk for all blocks.

    3 the columns' peaks, 4 f32[32] whose first is the value then, 5 i64[1] the id, -1 beside a NaN.
    """
    peak, tainted, to = splat32(np.float32(-np.inf)), splat32(np.float32(0)), arg(op, 4)
    blocks = (arg(op, 1) + VECTORS) // VECTORS
    for block in range(blocks):
        v = load_f32x32(arg(op, 3) + 128 * block)
        peak, tainted = maximum(v, peak), taint(tainted, v, v)
    store_f32x32(to, taint(peak, tainted, tainted))
    top, found = load_f32(to), -1
    for lane in range(1, 32):
        x = load_f32(to + 4 * lane)
        if not x <= top:  # larger, or a NaN; nothing is larger than a NaN, or different from it
            top = x if top == top else top
    store_f32(to, top)
    block = 0
    while found < 0 and block < blocks:
        if reaching(load_f32x32(arg(op, 3) + 128 * block), top) != 0:
            i = VECTORS * block
            while reaching(_vector(op, i), top) == 0:
                i += 1
            found = 32 * i + lowest_bit(reaching(_vector(op, i), top))
        block += 1
    store_i64(arg(op, 5), found)


def scan_reaching(op, ctx, thread, chunk):
    """Ids whose value is at least a bound, in order: one chunk for all blocks.

    3 the columns' peaks, 4 bound f32, 5 i64[V] ids, 6 i64[1] how many.
    """
    bound, to = arg_f32(op, 4), arg(op, 5)
    count = 0
    for block in range((arg(op, 1) + VECTORS) // VECTORS):
        if reaching(load_f32x32(arg(op, 3) + 128 * block), bound) != 0:
            for i in range(VECTORS * block, _end(op, block)):
                bits = reaching(_vector(op, i), bound)
                while bits != 0:
                    store_i64(to + 8 * count, 32 * i + lowest_bit(bits))
                    count += 1
                    bits &= bits - 1
    store_i64(arg(op, 6), count)


def scan_weights(op, ctx, thread, block):
    """2**((x - top) * scale), 0 below 2**-125; sums of that, and of it times its exponent, over each block.

    3 top, 4 scale, 5 to f32[vectors, 32], 6 to f32[blocks, 2].
    """
    top, scale = splat32(arg_f32(op, 3)), splat32(arg_f32(op, 4))
    zero, least = splat32(np.float32(0)), splat32(np.float32(-126))
    total, moment = zero, zero
    for i in range(VECTORS * block, _end(op, block)):
        power = maximum(mul(sub(_vector(op, i), top), scale), least)
        weight = where(power, _LEAST_POWER, exp2_within(power), zero)
        store_f32x32(arg(op, 5) + 128 * i, weight)
        total = add(total, weight)
        moment = fma(weight, power, moment)
    store_f32(arg(op, 6) + 8 * block, reduce_add(total))
    store_f32(arg(op, 6) + 8 * block + 4, reduce_add(moment))


def scan_forbid(op, ctx, thread, block):
    """Put -inf in place of all values below a bound, but for those in the copy. 3 the columns' peaks, 4 bound f32."""
    bound, low = arg_f32(op, 4), splat32(np.float32(-np.inf))
    for i in range(VECTORS * block, min(_end(op, block), arg(op, 1))):
        v = _vector(op, i)
        store_f32x32(arg(op, 0) + 128 * i, where(v, bound, v, low))
    peaks = arg(op, 3) + 128 * block
    v = load_f32x32(peaks)
    store_f32x32(peaks, where(v, bound, v, low))


def scan_depths(op, ctx, thread, part):
    """Add up the weights of a part of the row by how far below the top their value is, where that reaches a bound.

    3 top, 4 bins per unit, 5 bound, 6 weights f32[vectors, 32], 7 f32[parts, bins + 1, 4], zeros: neighbours add apart,
    8 bins (a float): the last one takes what is too deep, 9 vectors of a part.
    """
    top, fineness, bound, last = arg_f32(op, 3), arg_f32(op, 4), arg_f32(op, 5), arg_f32(op, 8)
    whole, masses = arg(op, 1), arg(op, 7) + 16 * part * (np.int64(last) + 1)
    first = arg(op, 9) * part
    for i in range(first, min(first + arg(op, 9), whole + 1)):
        x = arg(op, 0) + 128 * i if i < whole else arg(op, 2)
        bits = reaching(load_f32x32(x), bound)
        while bits != 0:
            lane = lowest_bit(bits)
            depth = (top - load_f32(x + 4 * lane)) * fineness
            bin = np.int64(depth if depth < last else last)  # not a number, as inf * 0, is not less
            at = masses + 16 * bin + 4 * (lane & 3)
            store_f32(at, load_f32(at) + load_f32(arg(op, 6) + 128 * i + 4 * lane))
            bits &= bits - 1


def scan_moments(op, ctx, thread, block):
    """Sums of depth and its square and the count of what is not -inf. 3 top; 4 f32[blocks, 3]."""
    top, zero = splat32(arg_f32(op, 3)), splat32(np.float32(0))
    count = 0
    once, twice = zero, zero
    for i in range(VECTORS * block, _end(op, block)):
        v = _vector(op, i)
        depth = where(v, _LOWEST, sub(v, top), zero)
        count += count_bits(reaching(v, _LOWEST))
        once, twice = add(once, depth), fma(depth, depth, twice)
    to = arg(op, 4) + 12 * block
    store_f32(to, reduce_add(once))
    store_f32(to + 4, reduce_add(twice))
    store_f32(to + 8, np.float32(count))


KERNELS = {
    f.__name__: f for f in (scan_peaks, scan_best, scan_reaching, scan_weights, scan_forbid, scan_depths, scan_moments)
}
