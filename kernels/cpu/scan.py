"""Kernels that look through a row of logits for the sampler: peaks, what reaches a bound, weights, mass by depth, moments.

A row is f32[V] anywhere in memory. Its whole vectors of 32 are read where they lie; what is left over comes from a copy, filled
up with -inf, so nothing behind a row is read. 64 vectors are a block, and one lane of a block a column. One chunk is a whole
row: 20 to 100 us of one thread. Order of arithmetic is fixed: 32 lanes per block, then one tree.

The row of every kernel: 0 x, 1 whole vectors, 2 the copy f32[32]. Next hop: `vocabulary.py` calls them.
"""

from __future__ import annotations

import numpy as np

from .scan_words import count_bits, lowest_bit, reaching, where
from .simd import (
    add,
    arg,
    arg_f32,
    fill,
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
from .softmax_words import exp2

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


@inline
def _blocks(op):
    return (arg(op, 1) + VECTORS) // VECTORS


def scan_peaks(op, ctx, thread, chunk):
    """The largest of every column. 3 f32[blocks, 32]; 4 f32[1], 0 or, if a value is NaN or +inf, NaN."""
    poison = splat32(np.float32(0))
    for block in range(_blocks(op)):
        peak = splat32(np.float32(-np.inf))
        for i in range(VECTORS * block, _end(op, block)):
            v = _vector(op, i)
            peak = maximum(v, peak)
            # -inf becomes a number; NaN and +inf stay what they are, and times 0 they are NaN
            poison = fma(maximum(fill(v, -3.4028234663852886e38), v), fill(v, 0.0), poison)
        store_f32x32(arg(op, 3) + 128 * block, peak)
    store_f32(arg(op, 4), reduce_add(poison))


def scan_reaching(op, ctx, thread, chunk):
    """Ids whose value is at least a bound, in order. 3 the columns' peaks, 4 bound f32, 5 i64[V] ids, 6 i64[1] how many."""
    bound, to = arg_f32(op, 4), arg(op, 5)
    count = 0
    for block in range(_blocks(op)):
        if reaching(load_f32x32(arg(op, 3) + 128 * block), bound) != 0:
            for i in range(VECTORS * block, _end(op, block)):
                bits = reaching(_vector(op, i), bound)
                while bits != 0:
                    store_i64(to + 8 * count, 32 * i + lowest_bit(bits))
                    count += 1
                    bits &= bits - 1
    store_i64(arg(op, 6), count)


def scan_weights(op, ctx, thread, chunk):
    """2**((x - top) * scale), 0 below 2**-125; sums of that, and of it times its exponent, over each block.

    3 top, 4 scale, 5 to f32[vectors, 32], 6 to f32[2, blocks].
    """
    top, scale = splat32(arg_f32(op, 3)), splat32(arg_f32(op, 4))
    zero = splat32(np.float32(0))
    blocks = _blocks(op)
    for block in range(blocks):
        total, moment = zero, zero
        for i in range(VECTORS * block, _end(op, block)):
            power = mul(sub(_vector(op, i), top), scale)
            weight = where(power, _LEAST_POWER, exp2(power), zero)
            store_f32x32(arg(op, 5) + 128 * i, weight)
            total = add(total, weight)
            moment = fma(weight, where(power, _LEAST_POWER, power, zero), moment)
        store_f32(arg(op, 6) + 4 * block, reduce_add(total))
        store_f32(arg(op, 6) + 4 * (blocks + block), reduce_add(moment))


def scan_forbid(op, ctx, thread, chunk):
    """Put -inf in place of all values below a bound, but for those in the copy. 3 the columns' peaks, 4 bound f32."""
    bound, low = arg_f32(op, 4), splat32(np.float32(-np.inf))
    for i in range(arg(op, 1)):
        v = _vector(op, i)
        store_f32x32(arg(op, 0) + 128 * i, where(v, bound, v, low))
    for block in range(_blocks(op)):
        peaks = arg(op, 3) + 128 * block
        v = load_f32x32(peaks)
        store_f32x32(peaks, where(v, bound, v, low))


def scan_depths(op, ctx, thread, chunk):
    """Add up weights by how far below the top their value is, where that reaches a bound.

    3 top, 4 bins per unit, 5 bound, 6 weights f32[vectors, 32], 7 f32[bins + 1, 8], zeros: neighbours add apart,
    8 bins (a float). The last one takes what is too deep.
    """
    top, fineness, bound = arg_f32(op, 3), arg_f32(op, 4), arg_f32(op, 5)
    whole, masses, last = arg(op, 1), arg(op, 7), arg_f32(op, 8)
    for i in range(whole + 1):
        x = arg(op, 0) + 128 * i if i < whole else arg(op, 2)
        bits = reaching(load_f32x32(x), bound)
        while bits != 0:
            lane = lowest_bit(bits)
            depth = (top - load_f32(x + 4 * lane)) * fineness
            bin = np.int64(depth if depth < last else last)  # not a number, as inf * 0, is not less
            at = masses + 32 * bin + 4 * (lane & 7)
            store_f32(at, load_f32(at) + load_f32(arg(op, 6) + 128 * i + 4 * lane))
            bits &= bits - 1


def scan_moments(op, ctx, thread, chunk):
    """Count, and sums of depth and its square, of what is not -inf. 3 top; 4 f32[blocks, 2]; 5 i64[1] the count."""
    top, zero = splat32(arg_f32(op, 3)), splat32(np.float32(0))
    count = 0
    for block in range(_blocks(op)):
        once, twice = zero, zero
        for i in range(VECTORS * block, _end(op, block)):
            v = _vector(op, i)
            depth = where(v, _LOWEST, sub(v, top), zero)
            count += count_bits(reaching(v, _LOWEST))
            once, twice = add(once, depth), fma(depth, depth, twice)
        store_f32(arg(op, 4) + 8 * block, reduce_add(once))
        store_f32(arg(op, 4) + 8 * block + 4, reduce_add(twice))
    store_i64(arg(op, 5), count)


KERNELS = {f.__name__: f for f in (scan_peaks, scan_reaching, scan_weights, scan_forbid, scan_depths, scan_moments)}
