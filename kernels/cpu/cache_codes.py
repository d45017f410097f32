"""Words that turn floats into a cache's integers and put them where they belong, for `cache_integers.py`.

Bits are those of ../cache_formats/rounding.py and integers.py, which also says how tiles lie.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from llvmlite import ir
from numba.core import cgutils

from .simd import like, word
from .vector import (
    F32,
    I8,
    I16,
    I32,
    I64,
    call,
    constant,
    f32,
    f32x8,
    f32x32,
    fma_of,
    i32x32,
    i64,
    pointer,
    shuffle,
    splat,
    void,
)

ROOM_BYTES = 2560


@word(i64)
def room(b: ir.IRBuilder) -> ir.Value:
    """The address of ROOM_BYTES on the stack, below what needs a probe on Windows."""
    at = cgutils.alloca_once(b, ir.ArrayType(I8, ROOM_BYTES))
    at.align = 64
    return b.ptrtoint(at, I64)


@like(2)
def larger_magnitude(b: ir.IRBuilder, x: ir.Value, y: ir.Value) -> ir.Value:
    """max(|x|, |y|), compared as integers: what is not a number is the largest."""
    ints = i32x32.llvm
    u, v = (b.and_(b.bitcast(w, ints), constant(ints, 0x7FFFFFFF)) for w in (x, y))
    return b.bitcast(b.select(b.icmp_signed(">", u, v), u, v), x.type)


@like(2)
def times_unless_zero(b: ir.IRBuilder, x: ir.Value, y: ir.Value) -> ir.Value:
    """x * y, and 0 where x is 0 whatever y."""
    zero = constant(x.type, 0.0)
    return b.select(b.fcmp_ordered("==", x, zero), zero, b.fmul(x, y))


@word(i64, f32x32, f32)
def holds(b: ir.IRBuilder, v: ir.Value, x: ir.Value) -> ir.Value:
    """1 if some lane is x, else 0."""
    found = b.fcmp_ordered("==", v, splat(b, v.type, x))
    return b.zext(call(b, "llvm.vector.reduce.or.v32i1", ir.IntType(1), found), I64)


absolute = word(f32, f32)(lambda b, x: call(b, "llvm.fabs.f32", F32, x))


def _integers(b: ir.IRBuilder, v: ir.Value, bits: int) -> ir.Value:
    n = v.type.count
    return b.trunc(b.fptosi(v, ir.VectorType(I32, n)), ir.VectorType(ir.IntType(bits), n))


_INTEGER = 1.5 * 2.0**23  # plus a small number: a float whose low bits are that number, rounded to nearest even


@word(void, i64, f32x32, f32x32)
def store_products(b: ir.IRBuilder, at: ir.Value, x: ir.Value, y: ir.Value) -> None:
    """Store x * y as int16, rounded to nearest even once; |x * y| is at most 32767, and what is no number becomes any."""
    bits = b.bitcast(fma_of(b, x, y, constant(x.type, _INTEGER)), i32x32.llvm)
    b.store(b.trunc(bits, ir.VectorType(I16, 32)), pointer(b, at, ir.VectorType(I16, 32)), align=2)


@word(void, i64, f32x8)
def store_i16x8(b: ir.IRBuilder, at: ir.Value, v: ir.Value) -> None:
    b.store(_integers(b, v, 16), pointer(b, at, ir.VectorType(I16, 8)), align=2)


def _scatter(b: ir.IRBuilder, at: ir.Value, v: ir.Value, gap: int) -> None:
    """Store elements `gap` bytes apart."""
    for i in range(v.type.count):
        to = pointer(b, b.add(at, I64(gap * i)), v.type.element)
        b.store(b.extract_element(v, I32(i)), to, align=v.type.element.width // 8)


def _nibbles(b: ir.IRBuilder, low: ir.Value, high: ir.Value) -> ir.Value:
    """A byte of each two codes."""
    return b.or_(b.and_(low, constant(low.type, 15)), b.shl(high, constant(high.type, 4)))


def putters(bits: int) -> ModuleType:
    """The words that put rounded codes of one token into a tile: put_k eight dims of a stripe, put_v sixteen."""
    w: Any = ModuleType("words")

    @word(void, i64, f32x8)
    def put_k(b: ir.IRBuilder, at: ir.Value, v: ir.Value) -> None:
        codes = _integers(b, v, max(bits, 8))
        if bits == 4:
            low, high = (shuffle(b, codes, [i, i + 1, i + 4, i + 5]) for i in (0, 2))
            codes = _nibbles(b, low, high)
        pair = ir.IntType(2 * codes.type.element.width)
        _scatter(b, at, b.bitcast(codes, ir.VectorType(pair, codes.type.count // 2)), 16 * pair.width // 8)

    @word(void, i64, f32x8, f32x8)
    def put_v(b: ir.IRBuilder, at: ir.Value, v: ir.Value, following: ir.Value) -> None:
        low, high = (_integers(b, x, max(bits, 8)) for x in (v, following))
        width = low.type.element.width // 8
        if bits == 4:
            _scatter(b, at, _nibbles(b, low, high), 2)
        else:
            _scatter(b, at, low, 2 * width)
            _scatter(b, b.add(at, I64(16 * width)), high, 2 * width)

    w.put_k, w.put_v = put_k, put_v
    words: ModuleType = w
    return words
