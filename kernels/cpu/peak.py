"""Kernels that only multiply and add: the yardstick that prefill is measured against. `peak_rate.py` runs them.

On the levels of `PINNED` every operand stays in a register. On the others a step is what matrix kernels do there, the
level's own multiply-add of `dots.py`, on operands that stay in L1. For i8mm that is sdot: whole tiles by smmla may be faster.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from . import dots, vector
from .dots import BYTES
from .lanes import Tile
from .peak_rate import ACCUMULATORS
from .simd import arg, word
from .vector import I64, constant, i64, pointer, void

_PAIR = "vpmaddubsw $2, $2, $1\nvpaddw $1, $0, $0"
PINNED = {
    ("avx2", "multiply"): ("vpmaddubsw $1, $0, $0", "=x,x,0"),
    ("avx2", "multiply_add"): (_PAIR, "=x,=&x,x,0"),
}
"""(level, kernel) -> assembly of one step of one sum. LLVM would see that all products are equal."""


def make(kind: str) -> Callable[..., None]:
    """Source of the kernel "multiply" or "multiply_add", for the level that is compiled for."""
    sums = Tile("a", dots.way().sums, ACCUMULATORS)
    start = word(sums)(lambda b: _all(lambda i: constant(sums.llvm.element, i), sums))
    finish = word(void, sums, i64)(_finish)
    step = word(sums, sums, i64)(_step(kind, sums))

    def kernel(op, ctx, thread, chunk):
        """Repeat a step. 0 steps, 1 where 128 bytes per chunk may be read and written."""
        place, a = arg(op, 1) + 128 * chunk, start()
        for _ in range(arg(op, 0)):
            a = step(a, place)
        finish(a, place)

    return kernel


def _all(one: Callable[[int], ir.Value], sums: Tile) -> ir.Constant:
    return ir.Constant(sums.llvm, [one(i) for i in range(ACCUMULATORS)])


def _step(kind: str, sums: Tile) -> Callable[..., ir.Value]:
    """One multiply-add of 32 weight bytes and 32 activation bytes, on every sum."""
    vector_type = sums.llvm.element

    def pinned(b: ir.IRBuilder, a: ir.Value, place: ir.Value) -> ir.Value:
        text, operands = PINNED[vector.target().level.name, kind]
        both = ir.LiteralStructType([vector_type, vector_type])
        result = both if operands.count("=") == 2 else vector_type
        w = constant(vector_type, 0x0101)
        for i in range(ACCUMULATORS):
            v = b.asm(ir.FunctionType(result, [vector_type] * 2), text, operands, [w, b.extract_value(a, i)], True)
            a = b.insert_value(a, b.extract_value(v, 0) if result is both else v, i)
        return a

    def own(b: ir.IRBuilder, a: ir.Value, place: ir.Value) -> ir.Value:
        # Memory may have changed, for all that LLVM knows: it has to load and multiply again.
        b.asm(ir.FunctionType(ir.VoidType(), []), "", "~{memory}", [], True)
        w = b.load(pointer(b, place, BYTES), align=1)
        values: list[Any] = [b.extract_value(a, i) for i in range(ACCUMULATORS)]
        for i, v in enumerate(dots.way().mac(b, values, w, b.add(place, I64(32)))):
            a = b.insert_value(a, v, i)
        return a

    return pinned if (vector.target().level.name, kind) in PINNED else own


def _finish(b: ir.IRBuilder, a: ir.Value, place: ir.Value) -> None:
    """Write the sums' sum, so that none can be left out."""
    total = b.extract_value(a, 0)
    for i in range(1, ACCUMULATORS):
        total = b.add(total, b.extract_value(a, i))
    b.store(total, pointer(b, place, total.type), align=1)
