"""The Hadamard rotation of a head, in place: `rotation.py` of the cache formats says what it is, bit by bit this."""

from __future__ import annotations

import numpy as np
from llvmlite import ir

from .simd import add, inline, load_f32x8, mul, splat8, sqrt, store_f32x8, sub, to_f32, word
from .vector import f32x8, shuffle


@word(f32x8, f32x8)
def butterfly8(b: ir.IRBuilder, v: ir.Value) -> ir.Value:
    """Sums and differences of neighbours, of pairs and of fours."""
    for half in (1, 2, 4):
        lower = [bool(i & half) for i in range(8)]
        signs = ir.Constant(v.type, [-1.0 if second else 1.0 for second in lower])
        v = b.fadd(shuffle(b, v, [i ^ half for i in range(8)]), b.fmul(v, signs))
    return v


@inline
def rotate(at, dim, most):
    """f32[dim] at `at` in blocks of at most `most` values; dim is a multiple of 8."""
    size, half = min(dim & -dim, most), 8
    for p in range(at, at + 4 * dim, 32):
        store_f32x8(p, butterfly8(load_f32x8(p)))
    while half < size:
        for first in range(0, dim, 2 * half):
            for d in range(first, first + half, 8):
                p, q = at + 4 * d, at + 4 * (d + half)
                low, high = load_f32x8(p), load_f32x8(q)
                store_f32x8(p, add(low, high))
                store_f32x8(q, sub(low, high))
        half *= 2
    by = splat8(np.float32(1) / sqrt(to_f32(size)))
    for p in range(at, at + 4 * dim, 32):
        store_f32x8(p, mul(load_f32x8(p), by))
