"""Words of the softmax: powers of two, and reductions that eight rows or eight lanes share. Used by `softmax.py`."""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir

from .simd import like, word
from .vector import I32, I64, constant, f32x8, f32x32, fma_of, i64, pointer, shuffle, unpack


def _fold(b: ir.IRBuilder, v: ir.Value, combine: Callable[..., ir.Value]) -> ir.Value:
    """32 lanes to 8: j, j + 8, j + 16 and j + 24 meet in lane j."""
    while v.type.count > 8:
        n = v.type.count // 2
        v = combine(b, shuffle(b, v, range(n)), shuffle(b, v, range(n, 2 * n)))
    return v


def _larger(b: ir.IRBuilder, x: ir.Value, y: ir.Value) -> ir.Value:
    return b.select(b.fcmp_ordered(">", x, y), x, y)


fold_add = word(f32x8, f32x32)(lambda b, v: _fold(b, v, lambda b, x, y: b.fadd(x, y)))
fold_max = word(f32x8, f32x32)(lambda b, v: _fold(b, v, _larger))


@word(f32x8, i64)
def rows_max(b: ir.IRBuilder, address: ir.Value) -> ir.Value:
    """The largest of each of eight vectors, f32[8, 8] in memory: a transposition that takes the maximum on its way."""
    rows = [b.load(pointer(b, b.add(address, I64(32 * i)), f32x8.llvm), align=4) for i in range(8)]
    for run in (1, 2, 4):
        rows = [_larger(b, *unpack(b, x, y, run)) for x, y in zip(rows[::2], rows[1::2], strict=True)]
    return rows[0]


_EXP2 = (0.6931470036506653, 0.24022242426872253, 0.05550733581185341, 0.009671512991189957, 0.001326472731307149)


@like(1)
def exp2(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    """2**x for x <= 0, to 1.6e-7; below -126 as for -126. 2**0 is 1 exactly, and a NaN stays one."""
    least = constant(x.type, -126.0)
    return _exp2(b, b.select(b.fcmp_ordered(">", least, x), least, x))


@like(1)
def exp2_within(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    """`exp2` for -126 <= x <= 0 alone."""
    return _exp2(b, x)


def _exp2(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    """Adding 1.5 * 2**23 leaves the nearest integer in the sum's low bits; the polynomial's error is least on [-0.5, 0.5]."""
    number = lambda c: constant(x.type, c)  # noqa: E731
    ints, magic = ir.VectorType(I32, x.type.count), number(12582912.0)
    shifted = b.fadd(x, magic)
    r, p = b.fsub(x, b.fsub(shifted, magic)), number(_EXP2[-1])
    for c in (*_EXP2[-2::-1], 1.0):
        p = fma_of(b, p, r, number(c))
    exponent = b.shl(b.bitcast(shifted, ints), constant(ints, 23))
    return b.bitcast(b.add(b.bitcast(p, ints), exponent), x.type)
