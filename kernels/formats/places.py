"""Where short codes lie in a packed group, for the kernels that write and read them one by one.

The places are those of cpu/unpack.py, which reads whole groups.
"""

from __future__ import annotations

from typing import Any

from .base import Kernel

ONES = 0x0101010101010101  # one bit in each byte of a word of eight codes


def code_at(w: Any, bits: int) -> Any:
    """A helper of expand kernels: the code of column i of a group, of the row whose first bytes are at p."""

    def four(p, i):
        return w.load_u8(p + 32 * (i // 4 % 4) + i % 4) >> 4 * (i // 16) & 15

    def two(p, i):
        return w.load_u8(p + 32 * (i // 16) + i % 4) >> 2 * (i // 4 % 4) & 3

    def three(p, i):
        step, at = i // 4, p + i % 4
        if step % 4 == 3:
            upper = w.load_u8(at + 32) >> (6 + step // 4) & 1
            return w.load_u8(at + 64 * (step // 4)) >> 6 | upper << 2
        place = step - step // 4  # of the six places of three bits, two in each byte
        return w.load_u8(at + 32 * (place // 2)) >> 3 * (place % 2) & 7

    def one(p, i):
        return w.load_u8(p + i % 4) >> (i // 4) & 1

    return w.inline({1: one, 2: two, 3: three, 4: four}[bits])


def code_putter(w: Any, bits: int) -> Kernel:
    """A helper of pack kernels: write a row's group at `to`, its place in the first 32 bytes.

    a, b, c, d are eight codes each, one a byte: steps 0 and 1, 2 and 3, 4 and 5, 6 and 7.
    """

    def four(to, a, b, c, d):
        low, high = a | c << 4, b | d << 4
        w.store_u32(to, low)
        w.store_u32(to + 32, low >> 32)
        w.store_u32(to + 64, high)
        w.store_u32(to + 96, high >> 32)

    def two(to, a, b, c, d):
        first, second = a | b << 4, c | d << 4
        w.store_u32(to, first | first >> 32 << 2)
        w.store_u32(to + 32, second | second >> 32 << 2)

    def one(to, a, b, c, d):
        v = a | b << 2 | c << 4 | d << 6
        w.store_u32(to, v | v >> 32 << 1)

    def three(to, a, b, c, d):
        low, third, seventh = 3 * ONES, b >> 32, d >> 32
        w.store_u32(to, a | a >> 32 << 3 | (third & low) << 6)
        w.store_u32(to + 32, b | c << 3 | (third >> 2 & ONES) << 6 | (seventh >> 2 & ONES) << 7)
        w.store_u32(to + 64, c >> 32 | d << 3 | (seventh & low) << 6)

    inlined: Kernel = w.inline({1: one, 2: two, 3: three, 4: four}[bits])
    return inlined


def spreader(w: Any) -> Any:
    """A helper of pack kernels: bit i of a byte as the lowest bit of byte i of a word."""
    return w.table([sum((byte >> i & 1) << 8 * i for i in range(8)) for byte in range(256)], 64)
