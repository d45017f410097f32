"""Vector words for Numba: one-line operations on small LLVM vectors. Addresses are int64.

A vector may be wider than the machine's registers: LLVM splits f32x32 into four AVX2 registers or eight NEON ones, and
the order of arithmetic does not change. Words on matrix tiles are in `tiles.py`; kernels are written in both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from .slots import ARG
from .vector import (
    F32,
    I8,
    I16,
    I32,
    I64,
    Vec,
    call,
    constant,
    f32,
    f32x8,
    f32x32,
    float_to_half,
    fma_of,
    half_power,
    half_to_float,
    i8x32,
    i32,
    i32x8,
    i32x32,
    i64,
    llvm_type,
    pointer,
    shuffle,
    splat,
    target,
    void,
)

inline = njit(error_model="numpy", forceinline=True, no_cpython_wrapper=True, no_cfunc_wrapper=True)
"""A helper that becomes part of its caller."""

function = njit(error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)
"""A helper that stays a function of its own, inside the caller's object."""


# ---- making words ----
def _finish(context: Any, value: Any) -> Any:
    return context.get_dummy_value() if value is None else value


def word(result: types.Type, *params: types.Type) -> Callable[[Callable[..., Any]], Any]:
    """Decorate lower(builder, *args) -> value into a word of fixed types."""

    def make(lower: Callable[..., Any]) -> Any:
        signature = result(*params)

        def typing(*_: Any) -> Any:
            return signature, lambda context, b, s, args: _finish(context, lower(b, *args))

        names = ", ".join(f"a{i}" for i in range(len(params)))
        scope: dict[str, Any] = {"typing": typing}
        # @intrinsic reads the number of parameters from the function's own signature, so it has to be written out.
        exec(f"def typed(context, {names}): return typing(context, {names})", scope)
        return intrinsic(scope["typed"])

    return make


def like(count: int) -> Callable[[Callable[..., Any]], Any]:
    """Decorate lower(builder, *vectors) into a word on `count` values of one type, whatever the type."""

    def make(lower: Callable[..., Any]) -> Any:
        def typing(t: types.Type) -> Any:
            return t(*[t] * count), lambda context, b, s, args: lower(b, *args)

        bodies: dict[int, Any] = {
            1: lambda c, x: typing(x),
            2: lambda c, x, y: typing(x),
            3: lambda c, x, y, z: typing(x),
        }
        return intrinsic(bodies[count])

    return make


# ---- memory ----
def _put(b: ir.IRBuilder, address: ir.Value, v: ir.Value) -> None:
    b.store(v, pointer(b, address, v.type), align=1)


def _load(t: types.Type) -> Any:
    return word(t, i64)(lambda b, address: b.load(pointer(b, address, llvm_type(t)), align=1))


def _store(t: types.Type) -> Any:
    return word(void, i64, t)(lambda b, address, v: _put(b, address, v))


def _load_half(t: Vec) -> Any:
    def lower(b: ir.IRBuilder, address: ir.Value) -> ir.Value:
        bits = b.load(pointer(b, address, ir.VectorType(I16, t.llvm.count)), align=1)
        return half_to_float(b, bits)

    return word(t, i64)(lower)


load_i32, load_i64, load_f32 = _load(i32), _load(i64), _load(f32)
load_f32x8, load_f32x32 = _load(f32x8), _load(f32x32)
load_f16x32 = _load_half(f32x32)
store_i64, store_f32, store_f32x8, store_f32x32 = _store(i64), _store(f32), _store(f32x8), _store(f32x32)


@word(i64, i64)
def load_u32(b: ir.IRBuilder, address: ir.Value) -> ir.Value:
    return b.zext(b.load(pointer(b, address, I32), align=1), I64)


@word(i64, i64)
def load_u8(b: ir.IRBuilder, address: ir.Value) -> ir.Value:
    return b.zext(b.load(pointer(b, address, I8)), I64)


@word(i64, i64)
def load_s8(b: ir.IRBuilder, address: ir.Value) -> ir.Value:
    return b.sext(b.load(pointer(b, address, I8)), I64)


@word(f32, i64)
def load_f16(b: ir.IRBuilder, address: ir.Value) -> ir.Value:
    bits = ir.Constant(ir.VectorType(I16, 4), [0] * 4)
    bits = b.insert_element(bits, b.load(pointer(b, address, I16), align=1), I32(0))
    return b.extract_element(half_to_float(b, bits), I32(0))


@word(f32, i64)
def load_half_power(b: ir.IRBuilder, address: ir.Value) -> ir.Value:
    """2**(e - 128) of the byte e, exact: the scale that ggml calls e8m0, halved."""
    return half_power(b, b.zext(b.load(pointer(b, address, I8)), I32))


@word(i64, i64)
def load_u16(b: ir.IRBuilder, address: ir.Value) -> ir.Value:
    return b.zext(b.load(pointer(b, address, I16), align=1), I64)


@word(void, i64, i64)
def store_u32(b: ir.IRBuilder, address: ir.Value, v: ir.Value) -> None:
    b.store(b.trunc(v, I32), pointer(b, address, I32), align=1)


@word(void, i64, i64)
def store_u16(b: ir.IRBuilder, address: ir.Value, v: ir.Value) -> None:
    b.store(b.trunc(v, I16), pointer(b, address, I16), align=1)


@word(void, i64, i64)
def store_u8(b: ir.IRBuilder, address: ir.Value, v: ir.Value) -> None:
    b.store(b.trunc(v, I8), pointer(b, address, I8))


@word(void, i64, f32)
def store_f16(b: ir.IRBuilder, address: ir.Value, x: ir.Value) -> None:
    h = float_to_half(b, splat(b, ir.VectorType(F32, 4), x))
    b.store(b.extract_element(h, I32(0)), pointer(b, address, I16), align=2)


def table(values: Sequence[int], width: int = 8) -> Any:
    """Make a word: i -> values[i], for 0 <= i < len(values). The values are integers of `width` bits, with a sign."""
    numbers = ir.Constant(ir.ArrayType(ir.IntType(width), len(values)), [ir.IntType(width)(v) for v in values])

    def lower(b: ir.IRBuilder, i: ir.Value) -> ir.Value:
        kept = cgutils.global_constant(b.module, "table", numbers)
        return b.sext(b.load(b.gep(kept, [I64(0), i], inbounds=True)), I64)

    return word(i64, i64)(lower)


def prefetch_line(b: ir.IRBuilder, address: ir.Value) -> None:
    call(b, "llvm.prefetch.p0", ir.VoidType(), pointer(b, address, I8), I32(0), I32(3), I32(1))


prefetch = word(void, i64)(prefetch_line)


# ---- making vectors ----
splat8 = word(f32x8, f32)(lambda b, x: splat(b, f32x8.llvm, x))
splat32 = word(f32x32, f32)(lambda b, x: splat(b, f32x32.llvm, x))


@intrinsic
def fill(typing_context: Any, x: Any, c: Any) -> Any:
    """A vector like x whose lanes are all c (a float constant)."""

    def lower(context: Any, b: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        return splat(b, signature.args[0].llvm, b.fptrunc(args[1], F32))

    return x(x, types.float64), lower


# ---- arithmetic ----
add = like(2)(lambda b, x, y: b.fadd(x, y))
sub = like(2)(lambda b, x, y: b.fsub(x, y))
mul = like(2)(lambda b, x, y: b.fmul(x, y))
div = like(2)(lambda b, x, y: b.fdiv(x, y))
fma = like(3)(fma_of)
rint = like(1)(lambda b, x: call(b, f"llvm.rint.v{x.type.count}f32", x.type, x))
maximum = like(2)(lambda b, x, y: b.select(b.fcmp_ordered(">", x, y), x, y))
minimum = like(2)(lambda b, x, y: b.select(b.fcmp_ordered("<", x, y), x, y))
to_f32 = word(f32, i64)(lambda b, x: b.sitofp(x, F32))
f32_of_bits = word(f32, i64)(lambda b, x: b.bitcast(b.trunc(x, I32), F32))
fma1 = word(f32, f32, f32, f32)(lambda b, x, y, z: call(b, "llvm.fma.f32", F32, x, y, z))
swap_pairs = word(f32x8, f32x8)(lambda b, v: shuffle(b, v, [i ^ 1 for i in range(8)]))
sqrt = word(f32, f32)(lambda b, x: call(b, "llvm.sqrt.f32", F32, x))


def _tree(b: ir.IRBuilder, v: ir.Value, combine: Callable[..., ir.Value]) -> ir.Value:
    n = v.type.count
    while n > 1:
        n //= 2
        v = combine(b, shuffle(b, v, range(n)), shuffle(b, v, range(n, 2 * n)))
    return b.extract_element(v, I32(0))


reduce_add = word(f32, f32x32)(lambda b, v: _tree(b, v, lambda b, x, y: b.fadd(x, y)))


first_lane = word(f32, f32x8)(lambda b, v: b.extract_element(v, I32(0)))


@word(f32, f32x32)
def largest_magnitude(b: ir.IRBuilder, v: ir.Value) -> ir.Value:
    """max |v|; compared as integers, so that a NaN is the largest and stays visible."""
    bits = b.and_(b.bitcast(v, i32x32.llvm), constant(i32x32.llvm, 0x7FFFFFFF))
    return b.bitcast(call(b, "llvm.vector.reduce.smax.v32i32", I32, bits), F32)


@word(f32x32, f32x32, i64, i64, f32x32)
def keep(b: ir.IRBuilder, v: ir.Value, first: ir.Value, end: ir.Value, other: ir.Value) -> ir.Value:
    """Lanes first..end-1 come from v, the others from `other`."""
    lanes = ir.Constant(i32x32.llvm, list(range(32)))
    bound = lambda n: splat(b, i32x32.llvm, b.trunc(n, I32))  # noqa: E731
    inside = b.and_(b.icmp_signed(">=", lanes, bound(first)), b.icmp_signed("<", lanes, bound(end)))
    return b.select(inside, v, other)


@like(1)
def power_of_two(b: ir.IRBuilder, n: ir.Value) -> ir.Value:
    ints = ir.VectorType(I32, n.type.count)
    k = b.add(b.fptosi(n, ints), constant(ints, 127))
    return b.bitcast(b.shl(k, constant(ints, 23)), n.type)


@inline
def exp(x):
    """e**x by Cephes' degree 6 polynomial (at most 1 ulp); the argument is clamped to [-87, 88]."""
    x = minimum(maximum(x, fill(x, -87.0)), fill(x, 88.0))
    n = rint(mul(x, fill(x, 1.44269504088896341)))
    r = fma(n, fill(x, 2.12194440e-4), fma(n, fill(x, -0.693359375), x))
    p = fma(fill(x, 1.9875691500e-4), r, fill(x, 1.3981999507e-3))
    p = fma(p, r, fill(x, 8.3334519073e-3))
    p = fma(p, r, fill(x, 4.1665795894e-2))
    p = fma(p, r, fill(x, 1.6666665459e-1))
    p = fma(p, r, fill(x, 5.0000001201e-1))
    return mul(add(fma(p, mul(r, r), r), fill(x, 1.0)), power_of_two(n))


# ---- activations ----
@word(void, i64, i64, f32, f32x32)
def store_q8(b: ir.IRBuilder, address: ir.Value, tokens: ir.Value, d: ir.Value, v: ir.Value) -> None:
    """Store one group of one token into an activation tile (layout in tiles.py): v rounded to int8, scale d, and sums.

    address: the token's lane in the group, tile + 4 * lane.
    """
    at = lambda field: b.add(address, b.mul(tokens, I64(field)))  # noqa: E731
    ints = b.fptosi(call(b, "llvm.rint.v32f32", v.type, v), i32x32.llvm)
    words = b.bitcast(b.trunc(ints, i8x32.llvm), i32x8.llvm)
    for i in range(8):
        b.store(b.extract_element(words, I32(i)), pointer(b, at(4 * i), I32), align=4)
    shorts = b.trunc(ints, ir.VectorType(I16, 32))
    s = b.add(shuffle(b, shorts, range(0, 32, 2)), shuffle(b, shorts, range(1, 32, 2)))
    s = b.add(shuffle(b, s, [0, 1, 2, 3, 8, 9, 10, 11]), shuffle(b, s, [4, 5, 6, 7, 12, 13, 14, 15]))
    s = b.add(shuffle(b, s, [0, 1, 4, 5]), shuffle(b, s, [2, 3, 6, 7]))
    starts = b.bitcast(b.neg(s), ir.VectorType(I32, 2))
    total = call(b, "llvm.vector.reduce.add.v4i16", I16, s)
    b.store(d, pointer(b, at(32), F32), align=4)
    b.store(b.fmul(d, b.sitofp(total, F32)), pointer(b, at(36), F32), align=4)
    b.store(b.extract_element(starts, I32(0)), pointer(b, at(40), I32), align=4)
    b.store(b.extract_element(starts, I32(1)), pointer(b, at(44), I32), align=4)


# ---- threads ----
@word(i64, i64, i64)
def atomic_add(b: ir.IRBuilder, address: ir.Value, v: ir.Value) -> ir.Value:
    return b.atomic_rmw("add", pointer(b, address, I64), v, "seq_cst")


@word(i64, i64)
def atomic_load(b: ir.IRBuilder, address: ir.Value) -> ir.Value:
    return b.load_atomic(pointer(b, address, I64), "seq_cst", 8)


@word(void, i64, i64)
def atomic_store(b: ir.IRBuilder, address: ir.Value, v: ir.Value) -> None:
    b.store_atomic(v, pointer(b, address, I64), "seq_cst", 8)


@word(i64, i64, i64, i64)
def compare_swap(b: ir.IRBuilder, address: ir.Value, old: ir.Value, new: ir.Value) -> ir.Value:
    """-> 1 if the word at `address` was `old` and is now `new`."""
    return b.zext(b.extract_value(b.cmpxchg(pointer(b, address, I64), old, new, "seq_cst"), 1), I64)


@word(void)
def pause(b: ir.IRBuilder) -> None:
    if target().arch == "x86-64":
        call(b, "llvm.x86.sse2.pause", ir.VoidType())
    elif target().arch == "arm64":
        call(b, "llvm.aarch64.hint", ir.VoidType(), I32(1))


@word(void)
def give_way(b: ir.IRBuilder) -> None:
    """Let another thread have this core."""
    call(b, "SwitchToThread" if target().system == "windows" else "sched_yield", I32)


@word(i64)
def ticks(b: ir.IRBuilder) -> ir.Value:
    """A fast clock: x86 counts about 2 to 4, ARM about 0.02 to 1 per nanosecond."""
    return call(b, "llvm.readcyclecounter" if target().arch == "x86-64" else "llvm.readsteadycounter", I64)


def _call(count: int) -> Any:
    def lower(b: ir.IRBuilder, address: ir.Value, *args: ir.Value) -> None:
        b.call(pointer(b, address, ir.FunctionType(ir.VoidType(), [I64] * count)), args)

    return word(void, i64, *[i64] * count)(lower)


call_chunk, call_tile, call_pack, call_expand, call_unpack = _call(4), _call(7), _call(5), _call(4), _call(3)
call_store, call_ready, call_score, call_weigh = _call(4), _call(7), _call(7), _call(8)
"""Call a compiled kernel by address."""

operand = word(i64, i64, i64)(lambda b, base, i: b.load(pointer(b, b.add(base, b.mul(i, I64(8))), I64), align=8))
"""Word i of an op record or of the context. A word, not a function: Numba would compile one anew for every literal i."""

arg = word(i64, i64, i64)(
    lambda b, op, i: b.load(pointer(b, b.add(op, b.mul(b.add(i, I64(ARG)), I64(8))), I64), align=8)
)
"""Argument i of an op record."""

arg_f32 = word(f32, i64, i64)(
    lambda b, op, i: b.load(pointer(b, b.add(op, b.mul(b.add(i, I64(ARG)), I64(8))), F32), align=8)
)
"""Argument i of an op record, a float32 in the word's low half."""
