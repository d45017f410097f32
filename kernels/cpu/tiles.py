"""Words on matrix tiles: R groups of eight weight rows (one row is one 32-bit lane) times T tokens.

Every word emits straight-line LLVM for the whole tile, so a format's kernel is ten lines for any R and T, the order of float
operations is the same for all and for every level, and Numba types ten calls instead of hundreds. A format file receives
these words as a module (`tile_words`, `panel_words`) and never sees R, T, the level or an instruction.

An activation tile (`quantise` in elementwise.py writes it) holds T tokens interleaved, per group of 32 columns:
8 steps of T x 4 int8, T scales f32, T scaled sums f32 (scale times the sum of the 32), and T pairs of int16 twice: minus
the sums that the two int16 halves of a lane would collect over steps 0-3 and 4-7. 48 T bytes.

Operands: A integer sums being collected, N their int32 totals, F float sums (R T each, row groups outside); S one small
integer scale per row, D one float per row (R each). p and x are addresses of weights and activations. Words on whole groups
of weights are in `groups.py`, those of plain formats in `plain_words.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from llvmlite import ir

from ..formats.base import Packed
from . import dots, simd
from .codes import add_codes
from .dots import INTS, SHORTS
from .groups import add_groups, panel_steps, steps_of
from .lanes import FLOATS, Shape, Tile, float_at, make_tuple, store_rows, take_apart
from .panels import ROW_GROUPS, TOKENS, Layout, packed_layout, panel_layout
from .simd import word
from .vector import I8, I16, I64, constant, fma_of, half_power, half_to_float, i64, pointer, void


def tile_words(packed: Packed, tokens: int) -> ModuleType:
    """The words for eight packed rows times `tokens` tokens."""
    layout = packed_layout(packed)
    return _make_words(Shape(tokens, 1, 0), layout, steps_of(packed), packed.fetch_bytes)


def panel_words(packed: Packed) -> ModuleType:
    """The words for sixteen unpacked rows (see panels.py) times four tokens."""
    layout = panel_layout(packed)
    return _make_words(Shape(TOKENS, ROW_GROUPS, layout.unit), layout, panel_steps(), 0)


def _make_words(shape: Shape, layout: Layout, steps: Any, fetch_bytes: int) -> ModuleType:
    w: Any = ModuleType("words")
    w.GROUP = 48 * shape.tokens
    w.CODES, w.STRIDE, w.HEAD, w.TAIL = layout.codes, layout.stride, layout.head, layout.tail
    _add_memory(w, shape, fetch_bytes)
    add_groups(w, shape, steps)
    add_codes(w, shape, steps)
    _add_integers(w, shape)
    _add_row_scales(w, shape)
    _add_row_floats(w, shape)
    _add_floats(w, shape)
    words: ModuleType = w
    return words


def _add_memory(w: Any, shape: Shape, fetch_bytes: int) -> None:
    @word(void, i64)
    def fetch(b: ir.IRBuilder, p: ir.Value) -> None:
        """Prefetch the weights of one group."""
        for line in range(-(-fetch_bytes // 64)):
            simd.prefetch_line(b, b.add(p, I64(64 * line)))

    @word(void, i64, i64, shape.floats, i64)
    def store(b: ir.IRBuilder, y: ir.Value, stride: ir.Value, acc: ir.Value, flags: ir.Value) -> None:
        store_rows(b, y, stride, take_apart(b, acc), shape.tokens, flags)

    w.fetch, w.store = fetch, store


def _add_integers(w: Any, shape: Shape) -> None:
    way: Any = dots.way()
    A, N, S = shape.sums(way), shape.ints, shape.scales(way)
    T, R = shape.tokens, shape.rows

    def start(halves: tuple[int, ...]) -> Any:
        def lower(b: ir.IRBuilder, x: ir.Value, bits: ir.Value) -> ir.Value:
            sums = []
            for t in range(T):
                fields = [way.start(b, x, dots.STARTS[half] * T + 4 * t) for half in halves]
                sums.append(way.shift(b, fields[0] if len(fields) == 1 else b.add(*fields), bits))
            return make_tuple(b, sums * R)

        return word(A, i64, i64)(lower)

    # Minus 2**bits times the activations' sum: makes unsigned weights q mean q - 2**bits.
    w.start, w.start_low, w.start_high = start((0, 1)), start((0,)), start((1,))
    w.total = word(N, A)(lambda b, a: make_tuple(b, [way.total(b, v) for v in take_apart(b, a)]))

    @word(N, A, S)
    def scaled(b: ir.IRBuilder, a: ir.Value, s: ir.Value) -> ir.Value:
        by_row = take_apart(b, s)
        return make_tuple(b, [way.scaled(b, v, by_row[i // T]) for i, v in enumerate(take_apart(b, a))])

    @word(N, N, N)
    def add(b: ir.IRBuilder, u: ir.Value, v: ir.Value) -> ir.Value:
        return make_tuple(b, [b.add(*pair) for pair in zip(take_apart(b, u), take_apart(b, v), strict=True)])

    w.scaled, w.add = scaled, add


def _add_row_scales(w: Any, shape: Shape) -> None:
    """Scales: pairs (first, second) of bytes for each of eight rows."""
    way: Any = dots.way()

    def byte_pairs(which: int, widen: Callable[..., ir.Value]) -> Any:
        def lower(b: ir.IRBuilder, p: ir.Value) -> ir.Value:
            raw = [b.load(pointer(b, at, ir.VectorType(I8, 16)), align=1) for at in shape.places(b, p)]
            return make_tuple(b, [way.scale_of(b, widen(b, v), which) for v in raw])

        return word(shape.scales(way), i64)(lower)

    # u4: the bytes' low nibbles, high4: their high ones.
    unsigned, signed = (lambda b, v: b.zext(v, SHORTS)), (lambda b, v: b.sext(v, SHORTS))
    u4 = lambda b, v: b.and_(unsigned(b, v), constant(SHORTS, 15))  # noqa: E731
    high4 = lambda b, v: b.lshr(unsigned(b, v), constant(SHORTS, 4))  # noqa: E731
    w.first_u8, w.first_s8, w.second_s8 = byte_pairs(0, unsigned), byte_pairs(0, signed), byte_pairs(1, signed)
    w.first_u4, w.second_u4, w.first_high4, w.second_high4 = (byte_pairs(i, f) for f in (u4, high4) for i in (0, 1))


def _add_row_floats(w: Any, shape: Shape) -> None:
    """Eight numbers, one per row, as float32."""

    def eight(element: ir.IntType, convert: Callable[..., ir.Value]) -> Any:
        def lower(b: ir.IRBuilder, p: ir.Value) -> ir.Value:
            raw = [b.load(pointer(b, at, ir.VectorType(element, 8)), align=1) for at in shape.places(b, p)]
            return make_tuple(b, [convert(b, v) for v in raw])

        return word(shape.row_floats, i64)(lower)

    unsigned = lambda b, v: b.uitofp(b.zext(v, INTS), FLOATS)  # noqa: E731
    w.half = eight(I16, half_to_float)
    w.first_u8_f = eight(I16, lambda b, v: unsigned(b, b.and_(v, constant(v.type, 255))))
    w.second_u8 = eight(I16, lambda b, v: unsigned(b, b.lshr(v, constant(v.type, 8))))
    w.eight_s8 = eight(I8, lambda b, v: b.sitofp(b.sext(v, INTS), FLOATS))
    w.half_powers = eight(I8, lambda b, v: half_power(b, b.zext(v, INTS)))  # 2**(e - 128)


def _add_floats(w: Any, shape: Shape) -> None:
    T, F, N, D = shape.tokens, shape.floats, shape.ints, shape.row_floats
    scale, total = 32 * T, 36 * T
    w.zero = word(F)(lambda b: make_tuple(b, [constant(FLOATS, 0.0)] * shape.cells))
    times = lambda b, u, v: b.fmul(u, v)  # noqa: E731

    def by_row(count: int, one: Callable[..., ir.Value]) -> Any:
        lower = lambda b, *v: make_tuple(b, [one(b, *r) for r in zip(*(take_apart(b, d) for d in v), strict=True)])  # noqa: E731
        return word(D, *[D] * count)(lower)

    w.multiplied = by_row(2, times)
    w.sixteen_times = by_row(1, lambda b, d: b.fmul(d, constant(FLOATS, 16.0)))

    def cells(result: Callable[..., ir.Value], *operands: Tile, x: bool = True) -> Any:
        """A word on all cells: result(b, acc, [x's number of the token,] operand of the cell or row ...)."""

        def lower(b: ir.IRBuilder, acc: ir.Value, *rest: ir.Value) -> ir.Value:
            parts = [take_apart(b, v) for v in rest[: len(operands)]]
            sums = []
            for i, a in enumerate(take_apart(b, acc)):
                values = [part[i if len(part) == shape.cells else i // T] for part in parts]
                sums.append(result(b, a, *values, *([rest[-1], i % T] if x else [])))
            return make_tuple(b, sums)

        return word(F, F, *operands, *([i64] if x else []))(lower)

    to_float = lambda b, v: b.sitofp(v, FLOATS)  # noqa: E731
    at = lambda b, x, field, t: float_at(b, x, field + 4 * t)  # noqa: E731
    w.fma_dx = cells(lambda b, a, i, d, x, t: fma_of(b, to_float(b, i), b.fmul(d, at(b, x, scale, t)), a), N, D)
    w.fma_x = cells(lambda b, a, i, x, t: fma_of(b, to_float(b, i), at(b, x, scale, t), a), N)
    w.fma_m = cells(lambda b, a, m, x, t: fma_of(b, m, at(b, x, total, t), a), D)
    w.fma_d = cells(lambda b, a, d, s: fma_of(b, d, s, a), D, F, x=False)
