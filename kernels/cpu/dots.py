"""Integer multiply-adds of eight rows: one class per instruction level, chosen by its name in `WAYS`.

Only here do levels differ in matrix kernels. A way collects sums over steps of 32 weight bytes (lane r holds four columns of
row r) times four activation bytes, repeated in every lane; sums are exact whatever the way. `tiles.py` makes words of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir

from . import vector
from .vector import I8, I16, I32, I64, constant, i8x32, pointer, shuffle, splat

BYTES, SHORTS, INTS = i8x32.llvm, ir.VectorType(I16, 16), ir.VectorType(I32, 8)


def bytes_at(b: ir.IRBuilder, x: ir.Value, offset: int) -> ir.Value:
    """Four activation bytes, repeated in every lane."""
    return b.bitcast(splat(b, INTS, b.load(pointer(b, b.add(x, I64(offset)), I32), align=4)), BYTES)


class Avx2:
    """int16 sums by vpmaddubsw. They may wrap on the way: starts and ranges are such that the final sum fits."""

    sums, scale = SHORTS, SHORTS

    @staticmethod
    def start(b: ir.IRBuilder, x: ir.Value, offset: int) -> ir.Value:
        return b.bitcast(splat(b, INTS, b.load(pointer(b, b.add(x, I64(offset)), I32), align=4)), SHORTS)

    @staticmethod
    def shift(b: ir.IRBuilder, v: ir.Value, bits: ir.Value) -> ir.Value:
        return b.shl(v, splat(b, SHORTS, b.trunc(bits, I16)))

    @staticmethod
    def product(b: ir.IRBuilder, w: ir.Value, q: ir.Value) -> ir.Value:
        return vector.call(b, "llvm.x86.avx2.pmadd.ub.sw", SHORTS, w, q)

    @classmethod
    def mac(cls, b: ir.IRBuilder, sums: list[ir.Value], w: ir.Value, x: ir.Value) -> list[ir.Value]:
        if len(sums) < 4:
            return [b.add(a, cls.product(b, w, bytes_at(b, x, 4 * t))) for t, a in enumerate(sums)]
        return [cls._pinned(b, a, w, x, 4 * t) for t, a in enumerate(sums)]

    @staticmethod
    def _pinned(b: ir.IRBuilder, a: ir.Value, w: ir.Value, x: ir.Value, offset: int) -> ir.Value:
        """One multiply-add as assembly. LLVM would turn the sums into trees and hoist the broadcasts, and spill: 20 % slower."""
        text = f"vpbroadcastd {offset}($3), $1\nvpmaddubsw $1, $2, $1\nvpaddw $1, $0, $0"
        signature = ir.FunctionType(ir.LiteralStructType([SHORTS, SHORTS]), [SHORTS, I64, SHORTS])
        pair = b.asm(signature, text, "=&x,=&x,x,r,0", [b.bitcast(w, SHORTS), x, a], True)
        return b.extract_value(pair, 0)

    @staticmethod
    def total(b: ir.IRBuilder, a: ir.Value) -> ir.Value:
        return vector.call(b, "llvm.x86.avx2.pmadd.wd", INTS, a, constant(SHORTS, 1))

    @staticmethod
    def scaled(b: ir.IRBuilder, a: ir.Value, s: ir.Value) -> ir.Value:
        return vector.call(b, "llvm.x86.avx2.pmadd.wd", INTS, a, s)

    @staticmethod
    def scale_of(b: ir.IRBuilder, shorts: ir.Value, which: int) -> ir.Value:
        return shuffle(b, shorts, [2 * (i // 2) + which for i in range(16)])

    @staticmethod
    def lookup(b: ir.IRBuilder, q: ir.Value, table: Sequence[int]) -> ir.Value:
        """table[q] for bytes q of 0..15."""
        return vector.call(b, "llvm.x86.avx2.pshuf.b", BYTES, ir.Constant(BYTES, [I8(v) for v in table] * 2), q)

    @staticmethod
    def signed(b: ir.IRBuilder, w: ir.Value, q: ir.Value) -> ir.Value:
        """s8 x s8 as |w| * sign(q, w): exact, since |q| <= 127 and 2 * 128 * 127 fits int16."""
        sign = lambda v, s: vector.call(b, "llvm.x86.avx2.psign.b", BYTES, v, s)  # noqa: E731
        pairs = vector.call(b, "llvm.x86.avx2.pmadd.ub.sw", SHORTS, sign(w, w), sign(q, w))
        return vector.call(b, "llvm.x86.avx2.pmadd.wd", INTS, pairs, constant(SHORTS, 1))


class Generic:
    """int32 sums in plain LLVM, for every CPU."""

    sums, scale = INTS, INTS

    @staticmethod
    def start(b: ir.IRBuilder, x: ir.Value, offset: int) -> ir.Value:
        halves = [b.sext(b.load(pointer(b, b.add(x, I64(offset + 2 * i)), I16), align=2), I32) for i in (0, 1)]
        return splat(b, INTS, b.add(*halves))

    @staticmethod
    def shift(b: ir.IRBuilder, v: ir.Value, bits: ir.Value) -> ir.Value:
        return b.shl(v, splat(b, INTS, b.trunc(bits, I32)))

    @classmethod
    def product(cls, b: ir.IRBuilder, w: ir.Value, q: ir.Value) -> ir.Value:
        return cls._dot4(b, w, q, b.zext)

    @staticmethod
    def _dot4(b: ir.IRBuilder, w: ir.Value, q: ir.Value, widen: Any) -> ir.Value:
        result = None
        for j in range(4):
            phase = [4 * r + j for r in range(8)]
            one = b.mul(widen(shuffle(b, w, phase), INTS), b.sext(shuffle(b, q, phase), INTS))
            result = one if result is None else b.add(result, one)
        return result

    @classmethod
    def mac(cls, b: ir.IRBuilder, sums: list[ir.Value], w: ir.Value, x: ir.Value) -> list[ir.Value]:
        return [b.add(a, cls.product(b, w, bytes_at(b, x, 4 * t))) for t, a in enumerate(sums)]

    @staticmethod
    def total(b: ir.IRBuilder, a: ir.Value) -> ir.Value:
        return a

    @staticmethod
    def scaled(b: ir.IRBuilder, a: ir.Value, s: ir.Value) -> ir.Value:
        return b.mul(a, s)

    @staticmethod
    def scale_of(b: ir.IRBuilder, shorts: ir.Value, which: int) -> ir.Value:
        return b.sext(shuffle(b, shorts, [2 * r + which for r in range(8)]), INTS)

    @staticmethod
    def lookup(b: ir.IRBuilder, q: ir.Value, table: Sequence[int]) -> ir.Value:
        result = constant(BYTES, 0)
        for i, v in enumerate(table):
            result = b.select(b.icmp_unsigned("==", q, constant(BYTES, i)), constant(BYTES, v), result)
        return result

    @classmethod
    def signed(cls, b: ir.IRBuilder, w: ir.Value, q: ir.Value) -> ir.Value:
        return cls._dot4(b, w, q, b.sext)


WAYS = {"avx2": Avx2, "generic": Generic}


def way() -> Any:
    """The class of the level that is compiled for."""
    return WAYS[vector.LEVEL]
