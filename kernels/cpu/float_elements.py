"""Elements of the cache's float formats: how eight of them become float32 (exactly) and come from it (to nearest even).

Meaning: ../cache_formats. What comes is within the format's range or not a number; what is not a number stays so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from llvmlite import ir

from .vector import F32, I8, I16, I32, constant, float_to_half, half_to_float, pointer

FLOATS, INTS, SHORTS = (ir.VectorType(t, 8) for t in (F32, I32, I16))


@dataclass(frozen=True)
class Element:
    """size: in bytes. read: address -> eight f32. write: eight f32 -> their bits, eight integers of that size."""

    size: int
    largest: float
    read: Callable[[ir.IRBuilder, ir.Value], ir.Value]
    write: Callable[[ir.IRBuilder, ir.Value], ir.Value]


def _load(b: ir.IRBuilder, address: ir.Value, kind: ir.Type) -> ir.Value:
    return b.load(pointer(b, address, ir.VectorType(kind, 8)), align=1)


def _read_f16(b: ir.IRBuilder, address: ir.Value) -> ir.Value:
    return half_to_float(b, _load(b, address, I16))


def _read_bf16(b: ir.IRBuilder, address: ir.Value) -> ir.Value:
    """The upper half of a float32."""
    return b.bitcast(b.shl(b.zext(_load(b, address, I16), INTS), constant(INTS, 16)), FLOATS)


def _write_bf16(b: ir.IRBuilder, v: ir.Value) -> ir.Value:
    bits = b.bitcast(v, INTS)
    odd = b.and_(b.lshr(bits, constant(INTS, 16)), constant(INTS, 1))
    rounded = b.add(b.add(bits, constant(INTS, 0x7FFF)), odd)
    quiet = b.or_(bits, constant(INTS, 0x400000))
    return b.trunc(b.lshr(b.select(b.fcmp_unordered("uno", v, v), quiet, rounded), constant(INTS, 16)), SHORTS)


def _read_e5m2(b: ir.IRBuilder, address: ir.Value) -> ir.Value:
    """The upper byte of a half."""
    return half_to_float(b, b.shl(b.zext(_load(b, address, I8), SHORTS), constant(SHORTS, 8)))


def _read_e4m3(b: ir.IRBuilder, address: ir.Value) -> ir.Value:
    """A half's bits but for three of fraction instead of ten; its exponents are eight less. All ones are not a number."""
    code = b.sext(_load(b, address, I8), SHORTS)
    half = b.and_(b.shl(code, constant(SHORTS, 7)), constant(SHORTS, 0xBFFF))
    ones = b.icmp_signed("==", b.and_(code, constant(SHORTS, 0x7F)), constant(SHORTS, 0x7F))
    half = b.or_(half, b.and_(b.sext(ones, SHORTS), constant(SHORTS, 0x7E00)))
    return b.fmul(half_to_float(b, half), constant(FLOATS, 256.0))


def _write_small(fraction: int, bias: int) -> Callable[[ir.IRBuilder, ir.Value], ir.Value]:
    """To bytes of a sign, exponents and `fraction` bits."""
    dropped = 23 - fraction
    subnormal = 2.0 ** (24 - bias - fraction)  # its last bit is worth as much as that of subnormal numbers

    def write(b: ir.IRBuilder, v: ir.Value) -> ir.Value:
        bits = b.bitcast(v, INTS)
        magnitude = b.and_(bits, constant(INTS, 0x7FFFFFFF))
        odd = b.and_(b.lshr(magnitude, constant(INTS, dropped)), constant(INTS, 1))
        rounded = b.add(b.add(magnitude, constant(INTS, (1 << dropped - 1) - 1 - (127 - bias << 23))), odd)
        normal = b.lshr(rounded, constant(INTS, dropped))
        shifted = b.bitcast(b.fadd(b.bitcast(magnitude, FLOATS), constant(FLOATS, subnormal)), INTS)
        small = b.sub(shifted, b.bitcast(constant(FLOATS, subnormal), INTS))
        code = b.select(b.icmp_unsigned("<", magnitude, constant(INTS, 128 - bias << 23)), small, normal)
        code = b.select(b.fcmp_unordered("uno", v, v), constant(INTS, 0x7F), code)
        sign = b.and_(b.lshr(bits, constant(INTS, 24)), constant(INTS, 0x80))
        return b.trunc(b.or_(code, sign), ir.VectorType(I8, 8))

    return write


ELEMENTS = {
    "f16": Element(2, 65504.0, _read_f16, float_to_half),
    "bf16": Element(2, 3.3895313892515355e38, _read_bf16, _write_bf16),
    "e5m2": Element(1, 57344.0, _read_e5m2, _write_small(2, 15)),
    "e4m3": Element(1, 448.0, _read_e4m3, _write_small(3, 7)),
}
