"""Codes of a packed group of 32 columns, taken apart into its eight steps of 32 bytes: what a multiply-add reads.

A step is four columns of eight rows: lane r holds row r's. Each function gives (step, codes) of the halves asked for (0:
steps 0-3, 1: steps 4-7) in the order that words multiply them, which needs the fewest registers. Their names are those of
`Codes.kind`. Shifts are of 16-bit pairs (x86 has none of bytes): safe where the mask drops what crosses a byte.
"""

from __future__ import annotations

from collections.abc import Iterator

from llvmlite import ir

from .dots import BYTES, SHORTS
from .vector import I64, constant, pointer

Steps = Iterator[tuple[int, ir.Value]]
Halves = tuple[int, ...]


def cut(b: ir.IRBuilder, v: ir.Value, shift: int, mask: int) -> ir.Value:
    """(byte >> shift) & mask of each byte; a negative shift goes up."""
    if shift:
        pairs, by = b.bitcast(v, SHORTS), constant(SHORTS, abs(shift))
        v = b.lshr(pairs, by) if shift > 0 else b.shl(pairs, by)
    return b.and_(b.bitcast(v, BYTES), constant(BYTES, mask))


def part(b: ir.IRBuilder, p: ir.Value, i: int) -> ir.Value:
    """The group's 32 bytes number i."""
    return b.load(pointer(b, b.add(p, I64(32 * i)), BYTES), align=1)


def whole_bytes(b: ir.IRBuilder, p: ir.Value, halves: Halves) -> Steps:
    """8 x 32 bytes, one vector per step."""
    for half in halves:
        for step in range(4 * half, 4 * half + 4):
            yield step, part(b, p, step)


def nibbles(b: ir.IRBuilder, p: ir.Value, halves: Halves) -> Steps:
    """4 x 32 bytes: vector t holds step t in its low nibbles and t + 4 in its high ones."""
    for t in range(4):
        v = part(b, p, t)
        for half in halves:
            yield 4 * half + t, cut(b, v, 4 * half, 15)


def five_bits(b: ir.IRBuilder, p: ir.Value, halves: Halves) -> Steps:
    """Nibbles, then 32 bytes whose bit t is step t's fifth bit."""
    fifths = part(b, p, 4)
    for step, q in nibbles(b, p, halves):
        yield step, b.or_(q, cut(b, fifths, step - 4, 16))


def six_bits(b: ir.IRBuilder, p: ir.Value, halves: Halves) -> Steps:
    """3 x 32 bytes per half: the low six bits are its first three steps, the top two of all three make the fourth."""
    for half in halves:
        u, v, t = (part(b, p, 3 * half + i) for i in range(3))
        for i, vector in enumerate((u, v, t)):
            yield 4 * half + i, cut(b, vector, 0, 63)
        yield 4 * half + 3, b.or_(b.or_(cut(b, u, 6, 3), cut(b, v, 4, 12)), cut(b, t, 2, 48))


def one_bit(b: ir.IRBuilder, p: ir.Value, halves: Halves) -> Steps:
    """32 bytes whose bit t is step t."""
    v = part(b, p, 0)
    for half in halves:
        for step in range(4 * half, 4 * half + 4):
            yield step, cut(b, v, step, 1)


def two_bits(b: ir.IRBuilder, p: ir.Value, halves: Halves) -> Steps:
    """2 x 32 bytes, one per half: bit pair t is step 4 half + t."""
    for half in halves:
        v = part(b, p, half)
        for t in range(4):
            yield 4 * half + t, cut(b, v, 2 * t, 3)


def three_bits(b: ir.IRBuilder, p: ir.Value, halves: Halves) -> Steps:
    """3 x 32 bytes: bits 0-2 and 3-5 are steps 0 1, 2 4, 5 6. What is left over makes steps 3 and 7: bits 6-7 of the first
    and the last are their lower two bits, bits 6 and 7 of the middle their third one."""
    middle = part(b, p, 1)
    if 0 in halves:
        first = part(b, p, 0)
        yield 0, cut(b, first, 0, 7)
        yield 1, cut(b, first, 3, 7)
        yield 2, cut(b, middle, 0, 7)
        yield 3, b.or_(cut(b, first, 6, 3), cut(b, middle, 4, 4))
    if 1 in halves:
        last = part(b, p, 2)
        yield 4, cut(b, middle, 3, 7)
        yield 5, cut(b, last, 0, 7)
        yield 6, cut(b, last, 3, 7)
        yield 7, b.or_(cut(b, last, 6, 3), cut(b, middle, 5, 4))
