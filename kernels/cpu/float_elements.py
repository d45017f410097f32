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
    """size: in bytes. write: eight f32 -> their bits, eight integers of that size. read: address -> eight f32.

    halves: codes of a byte -> bits of float16 that are `1 / factor` of them, which `read` reads.
    """

    size: int
    largest: float
    write: Callable[[ir.IRBuilder, ir.Value], ir.Value]
    read: Callable[[ir.IRBuilder, ir.Value], ir.Value]
    halves: Callable[[ir.IRBuilder, ir.Value], ir.Value] | None = None
    factor: float = 1.0


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


def _halves_e5m2(b: ir.IRBuilder, codes: ir.Value) -> ir.Value:
    """The upper byte of a half."""
    shorts = ir.VectorType(I16, codes.type.count)
    return b.shl(b.zext(codes, shorts), constant(shorts, 8))


def _halves_e4m3(b: ir.IRBuilder, codes: ir.Value) -> ir.Value:
    """A half's bits but for three of fraction instead of ten; the halves are 1/256 of it. All ones are not a number."""
    shorts = ir.VectorType(I16, codes.type.count)
    half = b.and_(b.shl(b.sext(codes, shorts), constant(shorts, 7)), constant(shorts, 0xBFFF))
    ones = b.icmp_signed("==", b.or_(half, constant(shorts, 0x8000)), constant(shorts, 0xBF80))
    return b.or_(half, b.sext(ones, shorts))


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
    "f16": Element(2, 65504.0, float_to_half, _read_f16),
    "bf16": Element(2, 3.3895313892515355e38, _write_bf16, _read_bf16),
    "e5m2": Element(1, 57344.0, _write_small(2, 15), _read_f16, _halves_e5m2),
    "e4m3": Element(1, 448.0, _write_small(3, 7), _read_f16, _halves_e4m3, 256.0),
}
