"""Numba types of matrix tiles, and the few moves on them that every word needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import models, register_model

from .dots import INTS
from .slots import PAIRS
from .vector import F32, I64, f32x8, pointer, splat

FLOATS = f32x8.llvm


class Tile(types.Type):
    """Numba type of `count` vectors."""

    def __init__(self, name: str, vector: ir.VectorType, count: int) -> None:
        self.llvm = ir.ArrayType(vector, count)
        super().__init__(name=f"tile_{name}{count}")


@register_model(Tile)
class _TileModel(models.PrimitiveModel):
    def __init__(self, manager: Any, tile: Tile) -> None:
        super().__init__(manager, tile, tile.llvm)


@dataclass(frozen=True)
class Shape:
    """A tile: `tokens` of activations times `rows` groups of eight weight rows, each `gap` bytes behind the last."""

    tokens: int
    rows: int
    gap: int

    @property
    def cells(self) -> int:
        return self.tokens * self.rows

    @property
    def floats(self) -> Tile:
        return Tile("f", FLOATS, self.cells)

    @property
    def ints(self) -> Tile:
        return Tile("i", INTS, self.cells)

    @property
    def row_floats(self) -> Tile:
        return Tile("d", FLOATS, self.rows)

    def sums(self, way: Any) -> Tile:
        return Tile("a", way.sums, self.cells)

    def scales(self, way: Any) -> Tile:
        return Tile("s", way.scale, self.rows)

    def places(self, b: ir.IRBuilder, p: ir.Value) -> list[ir.Value]:
        """The same place in each row group."""
        return [b.add(p, I64(self.gap * r)) if r else p for r in range(self.rows)]


def make_tuple(b: ir.IRBuilder, values: list[ir.Value]) -> ir.Value:
    result = ir.Constant(ir.ArrayType(values[0].type, len(values)), ir.Undefined)
    for i, v in enumerate(values):
        result = b.insert_value(result, v, i)
    return result


def take_apart(b: ir.IRBuilder, tile: ir.Value) -> list[ir.Value]:
    return [b.extract_value(tile, i) for i in range(tile.type.count)]


def float_at(b: ir.IRBuilder, x: ir.Value, offset: int) -> ir.Value:
    """A float, repeated in every lane."""
    return splat(b, FLOATS, b.load(pointer(b, b.add(x, I64(offset)), F32), align=4))


def store_rows(
    b: ir.IRBuilder, y: ir.Value, stride: ir.Value, sums: list[ir.Value], tokens: int, flags: ir.Value
) -> None:
    """Write sums, row groups outside, of `tokens` rows of activations: row t to y + t * stride.

    flags: 1 adds to what is there; with PAIRS two rows of activations are one token, and their sums are added.
    """
    adding = b.icmp_signed("!=", b.and_(flags, I64(1)), I64(0))

    def put(values: list[ir.Value], count: int) -> None:
        for i, v in enumerate(values):
            at = b.add(b.add(y, b.mul(stride, I64(i % count))), I64(32 * (i // count)))
            to = pointer(b, at, FLOATS)
            b.store(b.select(adding, b.fadd(b.load(to, align=4), v), v), to, align=4)

    if tokens % 2:
        put(sums, tokens)
        return
    with b.if_else(b.icmp_signed("!=", b.and_(flags, I64(PAIRS)), I64(0))) as (paired, single):
        with paired:
            put([b.fadd(sums[i], sums[i + 1]) for i in range(0, len(sums), 2)], tokens // 2)
        with single:
            put(sums, tokens)
