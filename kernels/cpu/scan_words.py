"""Words for looking through a row of logits: comparisons as bits, choices by lane. Used by `scan.py`."""

from __future__ import annotations

from llvmlite import ir

from .simd import word
from .vector import I32, I64, call, f32, f32x32, i64, splat


@word(i64, f32x32, f32)
def reaching(b: ir.IRBuilder, v: ir.Value, bound: ir.Value) -> ir.Value:
    """Bit i says whether lane i is at least `bound`; a NaN is not."""
    return b.zext(b.bitcast(b.fcmp_ordered(">=", v, splat(b, f32x32.llvm, bound)), I32), I64)


@word(i64, i64)
def lowest_bit(b: ir.IRBuilder, bits: ir.Value) -> ir.Value:
    """Index of the lowest bit that is set; bits != 0."""
    return call(b, "llvm.cttz.i64", I64, bits, ir.IntType(1)(1))


@word(i64, i64)
def count_bits(b: ir.IRBuilder, bits: ir.Value) -> ir.Value:
    return call(b, "llvm.ctpop.i64", I64, bits)


@word(f32x32, f32x32, f32, f32x32, f32x32)
def where(b: ir.IRBuilder, v: ir.Value, bound: ir.Value, yes: ir.Value, no: ir.Value) -> ir.Value:
    """Lanes of `yes` where v is at least `bound`, of `no` elsewhere."""
    return b.select(b.fcmp_ordered(">=", v, splat(b, f32x32.llvm, bound)), yes, no)


@word(f32x32, f32x32, f32x32, f32x32)
def taint(b: ir.IRBuilder, v: ir.Value, x: ir.Value, y: ir.Value) -> ir.Value:
    """v, with NaN in those lanes where x or y is NaN; a NaN of all ones stays in v."""
    ints = ir.VectorType(I32, v.type.count)
    flags = b.sext(b.fcmp_unordered("uno", x, y), ints)
    return b.bitcast(b.or_(b.bitcast(v, ints), flags), v.type)
