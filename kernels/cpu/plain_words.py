"""Words on tiles of plain weights: R groups of eight rows times T tokens, activations float32 and row by row.

Even and odd columns are summed apart and added at the end: one chain of multiply-adds would wait for itself. Weights are
eight values per column, one per row.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from llvmlite import ir

from . import simd
from .dots import INTS
from .lanes import FLOATS, Tile, float_at, make_tuple, store_rows, take_apart
from .panels import PLAIN_TOKENS, ROW_GROUPS
from .simd import word
from .vector import I16, I64, constant, fma_of, half_to_float, i64, pointer, target, void

CHAINS = 2


def _shorts(b: ir.IRBuilder, p: ir.Value) -> ir.Value:
    return b.load(pointer(b, p, ir.VectorType(I16, 8)), align=1)


def _single(b: ir.IRBuilder, p: ir.Value) -> ir.Value:
    return b.load(pointer(b, p, FLOATS), align=1)


def _half(b: ir.IRBuilder, p: ir.Value) -> ir.Value:
    return half_to_float(b, _shorts(b, p))


def _upper_half(b: ir.IRBuilder, p: ir.Value) -> ir.Value:
    """Eight bfloat16 as float32."""
    return b.bitcast(b.shl(b.zext(_shorts(b, p), INTS), constant(INTS, 16)), FLOATS)


def _one_of_two(load: Callable[..., ir.Value], size: int) -> Callable[..., ir.Value]:
    """Load a column of a pair that lie one behind the other."""
    return lambda b, p, which: load(b, b.add(p, I64(size * which)))


def _one_of_halves(b: ir.IRBuilder, p: ir.Value, which: int) -> ir.Value:
    """Load a column of a pair whose values alternate: the lower or the upper half of each lane."""
    mask = constant(INTS, -(1 << 16))
    if (
        which and target().arch == "x86-64" and target().has_halves
    ):  # a load of its own: LLVM would keep both, and spill sums
        return b.asm(ir.FunctionType(FLOATS, [I64, INTS]), "vpand ($1), $2, $0", "=x,r,x", [p, mask], True)
    both = b.load(pointer(b, p, INTS), align=1)
    return b.bitcast(b.and_(both, mask) if which else b.shl(both, constant(INTS, 16)), FLOATS)


# How to load a single column, and one of a pair.
_LOADS: dict[str, tuple[Callable[..., ir.Value], Callable[..., ir.Value]]] = {
    "F32": (_single, _one_of_two(_single, 32)),
    "F16": (_half, _one_of_two(_half, 16)),
    "BF16": (_upper_half, _one_of_halves),
}


def plain_words(number: str, size: int, tokens: int) -> ModuleType:
    """The words for weights of a plain format, eight of them in `size` bytes. tokens: of a tile; 0 for a panel's tile."""
    T, R = (tokens, 1) if tokens else (PLAIN_TOKENS, ROW_GROUPS)
    (load, load_of_pair), cells = _LOADS[number], R * T
    F = Tile("f", FLOATS, CHAINS * cells)
    w: Any = ModuleType("plain_words")
    w.PAIR = CHAINS * size
    w.zero = word(F)(lambda b: make_tuple(b, [constant(FLOATS, 0.0)] * (CHAINS * cells)))

    def columns(count: int) -> Any:
        """Add the products of some columns. The second eight rows are `gap` bytes behind the first."""

        def lower(
            b: ir.IRBuilder, acc: ir.Value, p: ir.Value, gap: ir.Value, x: ir.Value, stride: ir.Value
        ) -> ir.Value:
            sums = take_apart(b, acc)
            places = [b.add(p, b.mul(gap, I64(r))) if r else p for r in range(R)]
            for c in range(count):
                weights = [load_of_pair(b, at, c) if count == CHAINS else load(b, at) for at in places]
                for t in range(T):
                    v = float_at(b, b.add(x, b.mul(stride, I64(t))), 4 * c)
                    for r in range(R):
                        i = c * cells + r * T + t
                        sums[i] = fma_of(b, weights[r], v, sums[i])
            return make_tuple(b, sums)

        return word(F, F, i64, i64, i64, i64)(lower)

    w.pair, w.single = columns(CHAINS), columns(1)

    @word(void, i64)
    def fetch(b: ir.IRBuilder, p: ir.Value) -> None:
        for line in range(-(-CHAINS * size // 64) if tokens else 0):
            simd.prefetch_line(b, b.add(p, I64(64 * line)))

    @word(void, i64, i64, F, i64)
    def store(b: ir.IRBuilder, y: ir.Value, stride: ir.Value, acc: ir.Value, flags: ir.Value) -> None:
        sums = take_apart(b, acc)
        both = [b.fadd(even, odd) for even, odd in zip(sums[:cells], sums[cells:], strict=True)]
        store_rows(b, y, stride, both, T, flags)

    w.fetch, w.store = fetch, store
    words: ModuleType = w
    return words
