"""Words on whole groups of 32 columns: what a multiply-add reads, unpacked and multiplied in the order that fits registers.

w.mac(a, p, x) adds the products of unsigned weights to sums, w.dot(p, x) begins at zero; _low and _high take half a group,
16 columns. w.dot_signed gives int32 sums of int8 weights. How codes lie in a group is the business of `unpack.py`, how
they are multiplied that of `dots.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from ..formats.base import Packed
from . import dots, unpack
from .dots import Steps
from .lanes import Shape, make_tuple, take_apart
from .simd import word
from .vector import i64

BOTH = (0, 1)


@dataclass(frozen=True)
class GroupSteps:
    """Where a group's eight steps of 32 weights come from. table: what codes mean, none if they are the values."""

    take: Callable[..., Steps]
    table: tuple[int, ...] = ()

    def values(self, b: ir.IRBuilder, p: ir.Value, halves: tuple[int, ...]) -> Steps:
        """Steps of the weights' values."""
        for step, q in self.take(b, p, halves):
            yield step, dots.way().lookup(b, q, self.table) if self.table else q


def steps_of(packed: Packed) -> GroupSteps:
    """The steps of a packed format."""
    assert packed.codes is not None, "plain formats have no codes"
    return GroupSteps(getattr(unpack, packed.codes.kind), packed.codes.table)


def panel_steps() -> GroupSteps:
    """The steps of a panel: every byte is a value."""
    return GroupSteps(unpack.whole_bytes)


def add_groups(w: Any, shape: Shape, steps: GroupSteps) -> None:
    way: Any = dots.way()
    A, N, T = shape.sums(way), shape.ints, shape.tokens

    def mac(*halves: int) -> Any:
        def lower(b: ir.IRBuilder, a: ir.Value, p: ir.Value, x: ir.Value) -> ir.Value:
            rows = [steps.values(b, at, halves) for at in shape.places(b, p)]
            return make_tuple(b, way.mac_rows(b, take_apart(b, a), rows, x))

        return word(A, A, i64, i64)(lower)

    def dot(*halves: int) -> Any:
        def lower(b: ir.IRBuilder, p: ir.Value, x: ir.Value) -> ir.Value:
            return make_tuple(b, way.dot_rows(b, T, [steps.values(b, at, halves) for at in shape.places(b, p)], x))

        return word(A, i64, i64)(lower)

    def signed_sums(b: ir.IRBuilder, p: ir.Value, x: ir.Value) -> list[ir.Value]:
        codes = steps.take(b, p, BOTH)
        if steps.table:
            sums: list[ir.Value] = way.table_group(b, T, codes, steps.table, x, BOTH)
        else:
            sums = way.signed_group(b, T, codes, x, BOTH)
        return sums

    @word(N, i64, i64)
    def dot_signed(b: ir.IRBuilder, p: ir.Value, x: ir.Value) -> ir.Value:
        return make_tuple(b, [s for at in shape.places(b, p) for s in signed_sums(b, at, x)])

    w.mac, w.mac_low, w.mac_high = mac(0, 1), mac(0), mac(1)
    w.dot, w.dot_low, w.dot_high = dot(0, 1), dot(0), dot(1)
    w.dot_signed = dot_signed
