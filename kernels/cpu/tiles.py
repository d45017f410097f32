"""Words on matrix tiles: eight weight rows (one row is one 32-bit lane) times T tokens.

Every word emits straight-line LLVM for the whole tile, so a format's kernel is ten lines for any T, the order of float
operations is the same for every T and level, and Numba types ten calls instead of hundreds. A format file receives these
words as a module (`tile_words`) and never sees T, the level or an instruction.

An activation tile (`quantise` in elementwise.py writes it) holds T tokens interleaved, per group of 32 columns:
8 steps of T x 4 int8, T scales f32, T scaled sums f32 (scale times the sum of the 32), and T pairs of int16 twice: minus
the sums that the two int16 halves of a lane would collect over steps 0-3 and 4-7. 48 T bytes.

Operands: B 32 weight bytes (lane r holds four columns of row r), A integer sums being collected, N their int32 totals,
S one small integer scale per row, F float sums (T of them), D one float per row. p and x are addresses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from types import ModuleType
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import models, register_model

from . import dots, simd
from .dots import INTS, SHORTS, bytes_at
from .simd import word
from .unpack import Steps, cut, five_bits, nibbles, part, three_bits, two_bits
from .vector import F32, I8, I16, I64, constant, f32x8, fma_of, half_power, i8x32, i64, pointer, splat, void

FLOATS = f32x8.llvm


class Tile(types.Type):
    """Numba type of `count` vectors, one per token."""

    def __init__(self, name: str, vector: ir.VectorType, count: int) -> None:
        self.llvm = ir.ArrayType(vector, count)
        super().__init__(name=f"tile_{name}{count}")


@register_model(Tile)
class _TileModel(models.PrimitiveModel):
    def __init__(self, manager: Any, tile: Tile) -> None:
        super().__init__(manager, tile, tile.llvm)


class Scale(types.Type):
    """Numba type of one small integer per row, in the form the level multiplies with."""

    def __init__(self, vector: ir.VectorType) -> None:
        self.llvm = vector
        super().__init__(name="row_scale")


@register_model(Scale)
class _ScaleModel(models.PrimitiveModel):
    def __init__(self, manager: Any, scale: Scale) -> None:
        super().__init__(manager, scale, scale.llvm)


def _tuple(b: ir.IRBuilder, values: list[ir.Value]) -> ir.Value:
    result = ir.Constant(ir.ArrayType(values[0].type, len(values)), ir.Undefined)
    for i, v in enumerate(values):
        result = b.insert_value(result, v, i)
    return result


def _float_at(b: ir.IRBuilder, x: ir.Value, offset: int) -> ir.Value:
    return splat(b, FLOATS, b.load(pointer(b, b.add(x, I64(offset)), F32), align=4))


def tile_words(tokens: int, group_bytes: int) -> ModuleType:
    """The words for tiles of `tokens` tokens over weights whose packed group is `group_bytes` for eight rows."""
    from .codes import add_codes  # which needs the types above

    words = ModuleType(f"words_{tokens}")
    words.STEP, words.GROUP, words.TOKENS = 4 * tokens, 48 * tokens, tokens  # type: ignore[attr-defined]
    _add_memory(words, tokens, group_bytes)
    _add_bytes(words)
    _add_dots(words, tokens)
    _add_integers(words, tokens)
    _add_row_floats(words)
    _add_floats(words, tokens)
    add_codes(words, tokens)
    return words


def _add_memory(w: Any, T: int, group_bytes: int) -> None:
    F = Tile("f", FLOATS, T)
    w.load, w.half, w.single = simd.load_i8x32, simd.load_f16x8, simd.load_f32x8

    @word(f32x8, i64)
    def upper_half(b: ir.IRBuilder, p: ir.Value) -> ir.Value:
        """Eight bfloat16 as float32."""
        raw = b.load(pointer(b, p, ir.VectorType(I16, 8)), align=1)
        return b.bitcast(b.shl(b.zext(raw, INTS), constant(INTS, 16)), FLOATS)

    w.upper_half = upper_half

    @word(void, i64)
    def fetch(b: ir.IRBuilder, p: ir.Value) -> None:
        """Prefetch the weights of one group."""
        for line in range(-(-group_bytes // 64)):
            simd.prefetch_line(b, b.add(p, I64(64 * line)))

    @word(void, i64, i64, F, i64)
    def store(b: ir.IRBuilder, y: ir.Value, stride: ir.Value, acc: ir.Value, adds: ir.Value) -> None:
        """Write the sums of eight rows for each token, or add them to what is there."""
        adding = b.icmp_signed("!=", adds, I64(0))
        for t in range(T):
            to = pointer(b, b.add(y, b.mul(stride, I64(t))), FLOATS)
            v = b.extract_value(acc, t)
            b.store(b.select(adding, b.fadd(b.load(to, align=4), v), v), to, align=4)

    w.fetch, w.store = fetch, store


def _add_dots(w: Any, T: int) -> None:
    """Whole groups of 32: one word each, so that its loads and multiply-adds stay in the order that fits registers."""
    way: Any = dots.way()
    A, N = Tile("a", way.sums, T), Tile("i", INTS, T)
    step_at = lambda b, x, step: b.add(x, I64(4 * T * step))  # noqa: E731
    unpack = lambda b, v: [b.extract_value(v, t) for t in range(T)]  # noqa: E731

    def collect(b: ir.IRBuilder, sums: list[ir.Value], steps: Steps, x: ir.Value) -> ir.Value:
        """Add the steps' products; no sums yet: the first product is where they start."""
        for step, q in steps:
            at = step_at(b, x, step)
            sums = way.mac(b, sums, q, at) if sums else [way.product(b, q, bytes_at(b, at, 4 * t)) for t in range(T)]
        return _tuple(b, sums)

    def mac(take: Callable[..., Steps], *which: int) -> Any:
        return word(A, A, i64, i64)(lambda b, a, p, x: collect(b, unpack(b, a), take(b, p, *which), x))

    def dot(take: Callable[..., Steps], *which: int) -> Any:
        return word(A, i64, i64)(lambda b, p, x: collect(b, [], take(b, p, *which), x))

    w.mac_nibbles, w.mac_five_bits, w.dot_nibbles = mac(nibbles), mac(five_bits), dot(nibbles)
    # low: steps 0-3, high: steps 4-7.
    w.mac_three_bits_low, w.mac_three_bits_high = mac(three_bits, 0), mac(three_bits, 1)
    w.dot_two_bits_low, w.dot_two_bits_high = dot(two_bits, 0), dot(two_bits, 1)

    def signed_sums(b: ir.IRBuilder, steps: Iterable[tuple[int, ir.Value]], x: ir.Value) -> ir.Value:
        sums = [constant(INTS, 0)] * T
        for step, v in steps:
            sums = way.mac_signed(b, sums, v, step_at(b, x, step))
        return _tuple(b, sums)

    @word(N, i64, i64)
    def dot_signed(b: ir.IRBuilder, p: ir.Value, x: ir.Value) -> ir.Value:
        return signed_sums(b, ((step, part(b, p, step)) for step in range(8)), x)

    def dot_table(table: Sequence[int], halves: tuple[int, ...] = (0, 1)) -> Any:
        """Make a word: nibbles are indices of `table`, whose int8 values count. halves: 0 steps 0-3, 1 steps 4-7."""

        def lower(b: ir.IRBuilder, p: ir.Value, x: ir.Value) -> ir.Value:
            steps = ((step, way.lookup(b, q, table)) for step, q in nibbles(b, p) if step // 4 in halves)
            return signed_sums(b, steps, x)

        return word(N, i64, i64)(lower)

    def mac_table(table: Sequence[int]) -> Any:
        """Make a word like mac_nibbles: nibbles are indices of `table`, of values 0..31."""

        def take(b: ir.IRBuilder, p: ir.Value) -> Steps:
            return ((step, way.lookup(b, q, table)) for step, q in nibbles(b, p))

        return mac(take)

    w.dot_signed, w.dot_table, w.mac_table = dot_signed, dot_table, mac_table


def _add_bytes(w: Any) -> None:
    B = i8x32
    w.low6 = word(B, B)(lambda b, v: cut(b, v, 0, 63))

    @word(B, B, B, B)
    def fourth6(b: ir.IRBuilder, u: ir.Value, v: ir.Value, t: ir.Value) -> ir.Value:
        """The top two bits of three bytes make the fourth six-bit value."""
        return b.or_(b.or_(cut(b, u, 6, 3), cut(b, v, 4, 12)), cut(b, t, 2, 48))

    w.fourth6 = fourth6


def _add_integers(w: Any, T: int) -> None:
    way: Any = dots.way()
    A, N, S, B = Tile("a", way.sums, T), Tile("i", INTS, T), Scale(way.scale), i8x32
    each = lambda one: lambda b, v, *rest: _tuple(b, [one(b, b.extract_value(v, t), *rest) for t in range(T)])  # noqa: E731

    def start(fields: tuple[int, ...]) -> Any:
        def lower(b: ir.IRBuilder, x: ir.Value, bits: ir.Value) -> ir.Value:
            sums = []
            for t in range(T):
                v = way.start(b, x, fields[0] * T + 4 * t)
                for f in fields[1:]:
                    v = b.add(v, way.start(b, x, f * T + 4 * t))
                sums.append(way.shift(b, v, bits))
            return _tuple(b, sums)

        return word(A, i64, i64)(lower)

    # Minus 2**bits times the activations' sum: makes unsigned weights q mean q - 2**bits.
    w.start, w.start_low, w.start_high = start((40, 44)), start((40,)), start((44,))
    unpack = lambda b, v: [b.extract_value(v, t) for t in range(T)]  # noqa: E731
    w.mac = word(A, A, B, i64)(lambda b, a, v, x: _tuple(b, way.mac(b, unpack(b, a), v, x)))
    w.total = word(N, A)(each(way.total))
    w.scaled = word(N, A, S)(each(way.scaled))
    w.add = word(N, N, N)(lambda b, u, v: _tuple(b, [b.add(*p) for p in zip(unpack(b, u), unpack(b, v), strict=True)]))

    def byte_pairs(which: int, one: Callable[..., ir.Value]) -> Any:
        def lower(b: ir.IRBuilder, p: ir.Value) -> ir.Value:
            raw = b.load(pointer(b, p, ir.VectorType(I8, 16)), align=1)
            return way.scale_of(b, one(b, raw), which)

        return word(S, i64)(lower)

    # 16 bytes are (first, second) of eight rows. u4: the bytes' low nibbles, high4: their high ones.
    unsigned, signed = (lambda b, v: b.zext(v, SHORTS)), (lambda b, v: b.sext(v, SHORTS))
    u4 = lambda b, v: b.and_(unsigned(b, v), constant(SHORTS, 15))  # noqa: E731
    high4 = lambda b, v: b.lshr(unsigned(b, v), constant(SHORTS, 4))  # noqa: E731
    w.first_u8, w.first_s8, w.second_s8 = byte_pairs(0, unsigned), byte_pairs(0, signed), byte_pairs(1, signed)
    w.first_u4, w.second_u4, w.first_high4, w.second_high4 = (byte_pairs(i, f) for f in (u4, high4) for i in (0, 1))


def _add_row_floats(w: Any) -> None:
    """One small number per row, as float32."""

    @word(f32x8, i64)
    def second_u8(b: ir.IRBuilder, p: ir.Value) -> ir.Value:
        raw = b.load(pointer(b, p, ir.VectorType(I16, 8)), align=1)
        return b.uitofp(b.zext(b.lshr(raw, constant(raw.type, 8)), INTS), FLOATS)

    @word(f32x8, i64)
    def first_u8_f(b: ir.IRBuilder, p: ir.Value) -> ir.Value:
        raw = b.load(pointer(b, p, ir.VectorType(I16, 8)), align=1)
        return b.uitofp(b.zext(b.and_(raw, constant(raw.type, 255)), INTS), FLOATS)

    @word(f32x8, i64)
    def eight_s8(b: ir.IRBuilder, p: ir.Value) -> ir.Value:
        """Eight int8."""
        return b.sitofp(b.sext(b.load(pointer(b, p, ir.VectorType(I8, 8)), align=1), INTS), FLOATS)

    @word(f32x8, i64)
    def half_powers(b: ir.IRBuilder, p: ir.Value) -> ir.Value:
        """2**(e - 128) of eight bytes e."""
        return half_power(b, b.zext(b.load(pointer(b, p, ir.VectorType(I8, 8)), align=1), INTS))

    w.second_u8, w.first_u8_f, w.eight_s8, w.half_powers = second_u8, first_u8_f, eight_s8, half_powers


def _add_floats(w: Any, T: int) -> None:
    F, N, D = Tile("f", FLOATS, T), Tile("i", INTS, T), f32x8
    at = lambda b, v, t: b.extract_value(v, t)  # noqa: E731
    to_float = lambda b, v, t: b.sitofp(b.extract_value(v, t), FLOATS)  # noqa: E731
    all_of = lambda one: lambda b, *v: _tuple(b, [one(b, t, *v) for t in range(T)])  # noqa: E731
    scale, total = 32 * T, 36 * T
    w.sixteen_times = word(D, D)(lambda b, d: b.fmul(d, constant(FLOATS, 16.0)))
    w.multiplied = word(D, D, D)(lambda b, d, s: b.fmul(d, s))
    w.zero = word(F)(lambda b: _tuple(b, [constant(FLOATS, 0.0)] * T))
    w.fma_dx = word(F, F, N, D, i64)(
        all_of(
            lambda b, t, acc, i, d, x: fma_of(
                b, to_float(b, i, t), b.fmul(d, _float_at(b, x, scale + 4 * t)), at(b, acc, t)
            )
        )
    )
    w.fma_x = word(F, F, N, i64)(
        all_of(lambda b, t, acc, i, x: fma_of(b, to_float(b, i, t), _float_at(b, x, scale + 4 * t), at(b, acc, t)))
    )
    w.fma_m = word(F, F, D, i64)(
        all_of(lambda b, t, acc, m, x: fma_of(b, m, _float_at(b, x, total + 4 * t), at(b, acc, t)))
    )
    w.fma_d = word(F, F, D, F)(all_of(lambda b, t, acc, d, s: fma_of(b, d, at(b, s, t), at(b, acc, t))))

    def outer(b: ir.IRBuilder, t: int, acc: ir.Value, d: ir.Value, x: ir.Value, stride: ir.Value) -> ir.Value:
        return fma_of(b, d, _float_at(b, b.add(x, b.mul(stride, I64(t))), 0), at(b, acc, t))

    w.fma_f32 = word(F, F, D, i64, i64)(all_of(outer))
