"""Small LLVM vectors for Numba: their types, and how to write instructions on them. `simd.py` makes words of these.

Only the compiler imports this file and the others that are written in words: Numba comes with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import models, register_model

from .target import Target

I8, I16, I32, I64 = (ir.IntType(n) for n in (8, 16, 32, 64))
F16, F32 = ir.HalfType(), ir.FloatType()
i32, i64, f32, void = types.int32, types.int64, types.float32, types.void

_target: Target | None = None


def set_target(target: Target) -> None:
    """Say what words are lowered for; once in a process, for Numba keeps what it has compiled."""
    global _target
    assert _target in (None, target), "words are lowered for one target per process"
    _target = target


def target() -> Target:
    """What words are lowered for."""
    assert _target is not None, "set_target comes first"
    return _target


class Vec(types.Type):
    """Numba type of one LLVM vector."""

    def __init__(self, name: str, element: ir.Type, lanes: int) -> None:
        self.llvm = ir.VectorType(element, lanes)
        super().__init__(name=name)


@register_model(Vec)
class _VecModel(models.PrimitiveModel):
    def __init__(self, manager: Any, vec: Vec) -> None:
        super().__init__(manager, vec, vec.llvm)


i8x32, i16x16, i32x8, i32x32 = (
    Vec("i8x32", I8, 32),
    Vec("i16x16", I16, 16),
    Vec("i32x8", I32, 8),
    Vec("i32x32", I32, 32),
)
f32x8, f32x32 = Vec("f32x8", F32, 8), Vec("f32x32", F32, 32)
_SCALARS = {i32: I32, i64: I64, f32: F32}


# ---- writing instructions ----
def llvm_type(t: types.Type) -> ir.Type:
    return t.llvm if isinstance(t, Vec) else _SCALARS[t]


def constant(vector: ir.VectorType, value: float) -> ir.Constant:
    return ir.Constant(vector, [value] * vector.count)


def splat(b: ir.IRBuilder, vector: ir.VectorType, x: ir.Value) -> ir.Value:
    v = b.insert_element(ir.Constant(vector, ir.Undefined), x, I32(0))
    return b.shuffle_vector(v, v, ir.Constant(ir.VectorType(I32, vector.count), [0] * vector.count))


def shuffle(b: ir.IRBuilder, v: ir.Value, order: Sequence[int]) -> ir.Value:
    return b.shuffle_vector(v, v, ir.Constant(ir.VectorType(I32, len(order)), list(order)))


def shuffle_two(b: ir.IRBuilder, x: ir.Value, y: ir.Value, order: Sequence[int]) -> ir.Value:
    """Lanes of x come first, those of y behind them."""
    return b.shuffle_vector(x, y, ir.Constant(ir.VectorType(I32, len(order)), list(order)))


def unpack(b: ir.IRBuilder, x: ir.Value, y: ir.Value, run: int) -> tuple[ir.Value, ir.Value]:
    """A step of a transposition: runs of 1, 2 or 4 lanes of two vectors of eight by turns, within halves but for 4."""
    lanes = {1: [0, 8, 1, 9, 4, 12, 5, 13], 2: [0, 1, 8, 9, 4, 5, 12, 13], 4: [0, 1, 2, 3, 8, 9, 10, 11]}[run]
    return shuffle_two(b, x, y, lanes), shuffle_two(b, x, y, [i + (4 if run == 4 else 2) for i in lanes])


def call(b: ir.IRBuilder, name: str, result: ir.Type, *args: ir.Value) -> ir.Value:
    f = cgutils.get_or_insert_function(b.module, ir.FunctionType(result, [a.type for a in args]), name)
    return b.call(f, args)


def pointer(b: ir.IRBuilder, address: ir.Value, target: ir.Type) -> ir.Value:
    return b.inttoptr(address, target.as_pointer())


def fma_of(b: ir.IRBuilder, x: ir.Value, y: ir.Value, z: ir.Value) -> ir.Value:
    return call(b, f"llvm.fma.v{x.type.count}f32", x.type, x, y, z)


def half_to_float(b: ir.IRBuilder, bits: ir.Value) -> ir.Value:
    """f16 bits (a vector of i16) -> f32, exact. CPUs without the conversion multiply the magnitude by 2**112."""
    floats, ints = ir.VectorType(F32, bits.type.count), ir.VectorType(I32, bits.type.count)
    if target().has_halves:
        return b.fpext(b.bitcast(bits, ir.VectorType(F16, bits.type.count)), floats)
    wide = b.zext(bits, ints)
    magnitude = b.shl(b.and_(wide, constant(ints, 0x7FFF)), constant(ints, 13))
    finite = b.bitcast(b.fmul(b.bitcast(magnitude, floats), constant(floats, 2.0**112)), ints)
    special = b.or_(magnitude, constant(ints, 0x7F800000))
    value = b.select(b.icmp_unsigned(">=", magnitude, constant(ints, 0x7C00 << 13)), special, finite)
    return b.bitcast(b.or_(value, b.shl(b.and_(wide, constant(ints, 0x8000)), constant(ints, 16))), floats)


def float_to_half(b: ir.IRBuilder, v: ir.Value) -> ir.Value:
    """f32 -> f16 bits (i16), to nearest even; overflow gives infinity, a NaN stays one."""
    ints, shorts = ir.VectorType(I32, v.type.count), ir.VectorType(I16, v.type.count)
    if target().has_halves:
        return b.bitcast(b.fptrunc(v, ir.VectorType(F16, v.type.count)), shorts)
    bits = b.bitcast(v, ints)
    sign = b.and_(b.lshr(bits, constant(ints, 16)), constant(ints, 0x8000))
    magnitude = b.and_(bits, constant(ints, 0x7FFFFFFF))
    # Normal halves: rebias and round the 13 dropped bits to even. A carry may run into infinity, which is right.
    odd = b.and_(b.lshr(magnitude, constant(ints, 13)), constant(ints, 1))
    rounded = b.add(b.add(magnitude, constant(ints, 0xFFF - (112 << 23))), odd)
    normal = b.lshr(rounded, constant(ints, 13))
    # Subnormal halves: adding 0.5 puts the wanted bits at the end of the mantissa, rounded by the adder.
    small = b.sub(
        b.bitcast(b.fadd(b.bitcast(magnitude, v.type), constant(v.type, 0.5)), ints), constant(ints, 0x3F000000)
    )
    half = b.select(b.icmp_unsigned("<", magnitude, constant(ints, 113 << 23)), small, normal)
    half = b.select(b.icmp_unsigned(">=", magnitude, constant(ints, 0x47800000)), constant(ints, 0x7C00), half)
    nan = b.or_(constant(ints, 0x7E00), b.and_(b.lshr(magnitude, constant(ints, 13)), constant(ints, 0x3FF)))
    half = b.select(b.icmp_unsigned(">", magnitude, constant(ints, 0x7F800000)), nan, half)
    return b.trunc(b.or_(half, sign), shorts)


def half_power(b: ir.IRBuilder, e: ir.Value) -> ir.Value:
    """2**(e - 128) as f32, exact, for e of 0..255 (i32, one or a vector). The two smallest are subnormal."""
    number = lambda n: constant(e.type, n) if isinstance(e.type, ir.VectorType) else e.type(n)  # noqa: E731
    floats = ir.VectorType(F32, e.type.count) if isinstance(e.type, ir.VectorType) else F32
    subnormal = b.shl(b.add(e, number(1)), number(21))
    normal = b.shl(b.sub(e, number(1)), number(23))
    return b.bitcast(b.select(b.icmp_unsigned("<", e, number(2)), subnormal, normal), floats)
