"""Words that multiply int16 two by two: R rows times a stripe of 16 lanes, for the integer formats of the cache.

A stripe is two vectors of eight int32 sums, lane by lane the sum of products of pairs: of two dims where a lane is a cached
token (q.k), of two tokens where it is a dim (weights @ V). A row's pair is the same for all lanes. Integer sums are exact,
so levels may differ in everything but the result. Six rows fill AVX2's 16 registers. Layout: ../cache_formats/integers.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from llvmlite import ir

from . import simd, vector
from .dots import INTS, SHORTS
from .lanes import FLOATS, Tile, float_at, make_tuple, take_apart
from .simd import word
from .vector import I8, I16, I64, constant, fma_of, half_to_float, i64, pointer, shuffle, splat, void

PAIRS = 4  # pairs of a step: eight dims of every head size, eight tokens
VECTORS = 2
_BYTES = ir.VectorType(I8, 16)


def step_bytes(bits: int) -> int:
    """Bytes of a stripe that a step reads."""
    return PAIRS * VECTORS * 2 * bits


def stripe_words(bits: int, of_values: bool, rows: int, scale: Callable[..., ir.Value]) -> ModuleType:
    """The words for codes of 16, 8 or 4 bits, in a K tile or a V tile, and `rows` rows. scale: a word's body, eight floats."""
    w: Any = ModuleType("words")
    sums = Tile("p", INTS, VECTORS * rows)
    way = _way()

    @word(void, i64)
    def fetch(b: ir.IRBuilder, p: ir.Value) -> None:
        """Prefetch what a step reads."""
        for line in range(step_bytes(bits) // 64):
            simd.prefetch_line(b, b.add(p, I64(64 * line)))

    @word(sums, sums, i64, i64, i64)
    def mac(b: ir.IRBuilder, acc: ir.Value, p: ir.Value, x: ir.Value, stride: ir.Value) -> ir.Value:
        """Four pairs at p times those of each row: row r's pairs are at x + r * stride."""
        cells = take_apart(b, acc)
        places = [b.add(x, b.mul(stride, I64(r))) if r else x for r in range(rows)]
        for i, codes in enumerate(_codes(b, p, bits, of_values)):
            for r, at in enumerate(places):
                some = slice(VECTORS * r, VECTORS * (r + 1))
                cells[some] = way(b, cells[some], codes, at, 4 * i)
        return make_tuple(b, cells)

    w.fetch, w.mac = fetch, mac
    w.zero = word(sums)(lambda b: make_tuple(b, [constant(INTS, 0)] * (VECTORS * rows)))
    _add_endings(w, sums, rows, scale)
    words: ModuleType = w
    return words


def _codes(b: ir.IRBuilder, p: ir.Value, bits: int, of_values: bool) -> Iterator[list[ir.Value]]:
    """The codes of each pair of a step: two vectors of int16, each made just before it is used."""

    def load(kind: ir.VectorType, offset: int) -> ir.Value:
        return b.load(pointer(b, b.add(p, I64(offset)), kind), align=16)

    if bits == 16:
        yield from ([load(SHORTS, 64 * i + 32 * v) for v in range(VECTORS)] for i in range(PAIRS))
    elif bits == 8:
        yield from ([b.sext(load(_BYTES, 32 * i + 16 * v), SHORTS) for v in range(VECTORS)] for i in range(PAIRS))
    elif of_values:  # a byte's codes are eight dims apart
        yield from (_nibbles(b, load(_BYTES, 16 * i)) for i in range(PAIRS))
    else:  # a byte's codes are a pair apart
        for i in range(PAIRS // 2):
            both = [_nibbles(b, load(_BYTES, 32 * i + 16 * v)) for v in range(VECTORS)]
            yield [low for low, _ in both]
            yield [high for _, high in both]


def _nibbles(b: ir.IRBuilder, codes: ir.Value) -> list[ir.Value]:
    """16 bytes -> their low halves and their high ones, each -8..7."""
    wide = b.zext(codes, SHORTS)
    twelve = constant(SHORTS, 12)
    return [b.ashr(b.shl(wide, twelve), twelve), b.ashr(b.shl(wide, constant(SHORTS, 8)), twelve)]


def _add_endings(w: Any, sums: Tile, rows: int, scale: Callable[..., ir.Value]) -> None:
    """What becomes of a stripe's sums."""

    @word(void, sums, i64, i64, i64, i64, i64)
    def scores(
        b: ir.IRBuilder, acc: ir.Value, scales: ir.Value, x: ir.Value, stride: ir.Value, to: ir.Value, adds: ir.Value
    ) -> None:
        """out[r] = sums * (token's scale times row's) [+ out[r]]: row r's scale is at x + r * stride, out 256 bytes apart."""
        by_token = [scale(b, scales, v) for v in range(VECTORS)]
        adding = b.icmp_signed("!=", adds, I64(0))
        for i, a in enumerate(take_apart(b, acc)):
            r, v = divmod(i, VECTORS)
            factor = b.fmul(by_token[v], float_at(b, b.add(x, b.mul(stride, I64(r))), 0))
            at = pointer(b, b.add(to, I64(256 * r + 32 * v)), FLOATS)
            before = b.select(adding, b.load(at, align=4), constant(FLOATS, 0.0))
            b.store(fma_of(b, b.sitofp(a, FLOATS), factor, before), at, align=4)

    @word(void, sums, i64, i64, i64, i64)
    def fold(b: ir.IRBuilder, acc: ir.Value, x: ir.Value, rescales: ir.Value, to: ir.Value, stride: ir.Value) -> None:
        """out[r] = out[r] * rescales[r] + sums * factors[r]: factors are at x, out is `stride` bytes apart."""
        for i, a in enumerate(take_apart(b, acc)):
            r, v = divmod(i, VECTORS)
            at = pointer(b, b.add(b.add(to, b.mul(stride, I64(r))), I64(32 * v)), FLOATS)
            before = b.fmul(b.load(at, align=4), float_at(b, rescales, 4 * r))
            b.store(fma_of(b, b.sitofp(a, FLOATS), float_at(b, x, 4 * r), before), at, align=4)

    w.scores, w.fold = scores, fold


def scale_f32(b: ir.IRBuilder, p: ir.Value, which: int) -> ir.Value:
    """Eight float32 scales of a stripe."""
    return b.load(pointer(b, b.add(p, I64(32 * which)), FLOATS), align=4)


def scale_f16(b: ir.IRBuilder, p: ir.Value, which: int) -> ir.Value:
    """Eight half scales of a stripe."""
    return half_to_float(b, b.load(pointer(b, b.add(p, I64(16 * which)), ir.VectorType(I16, 8)), align=2))


# ---- one pair of one row times two vectors: sums, codes, address and offset of the row's pair -> sums ----
def _pinned(b: ir.IRBuilder, text: str, sums: list[ir.Value], codes: list[ir.Value], x: ir.Value) -> list[ir.Value]:
    """Assembly on $0, $1 sums, $2, $3 free registers, $4, $5 codes, $6 address. LLVM would turn sums into trees, hoist
    broadcasts and spill, and split VNNI's multiply-add in two."""
    kind = ir.FunctionType(ir.LiteralStructType([INTS] * 4), [INTS, INTS, I64, INTS, INTS])
    values = [*(b.bitcast(v, INTS) for v in codes), x, *sums]
    result = b.asm(kind, text, "=&x,=&x,=&x,=&x,x,x,r,0,1", values, True)
    return [b.extract_value(result, v) for v in range(VECTORS)]


def _avx2(b: ir.IRBuilder, sums: list[ir.Value], codes: list[ir.Value], x: ir.Value, offset: int) -> list[ir.Value]:
    text = (
        f"vpbroadcastd {offset}($6), $2\nvpmaddwd $2, $4, $3\nvpmaddwd $2, $5, $2\nvpaddd $3, $0, $0\nvpaddd $2, $1, $1"
    )
    return _pinned(b, text, sums, codes, x)


def _vnni(b: ir.IRBuilder, sums: list[ir.Value], codes: list[ir.Value], x: ir.Value, offset: int) -> list[ir.Value]:
    mac = "{vex} vpdpwssd" if vector.target().level.name == "avxvnni" else "vpdpwssd"
    return _pinned(b, f"vpbroadcastd {offset}($6), $2\n{mac} $2, $4, $0\n{mac} $2, $5, $1", sums, codes, x)


def _plain(b: ir.IRBuilder, sums: list[ir.Value], codes: list[ir.Value], x: ir.Value, offset: int) -> list[ir.Value]:
    """Products of int16 as int32, first ones and then second ones: what ARM has an instruction for."""
    for which in (0, 1):
        one = b.load(pointer(b, b.add(x, I64(offset + 2 * which)), I16), align=2)
        q = b.sext(splat(b, ir.VectorType(I16, 8), one), INTS)
        some = [b.sext(shuffle(b, c, range(which, 16, 2)), INTS) for c in codes]
        sums = [b.add(a, b.mul(c, q)) for a, c in zip(sums, some, strict=True)]
    return sums


def _way() -> Any:
    name = vector.target().level.name
    return {"avx512vnni": _vnni, "avxvnni": _vnni, "avx2": _avx2}.get(name, _plain)
