"""What formats of nibbles share: 32 columns are 16 bytes, whose nibbles are codes or indices of a table.

The low nibbles are values 0..15, the high ones 16..31, as in q4_0.py. Packed, eight rows of such a group are 4 x 32 bytes
(low nibbles are steps 0-3, high ones 4-7), which the words `dot_table` and `mac_table` of cpu/tiles.py multiply.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .base import Bytes, Floats, Kernel, bits


def look_up(table: Sequence[int], qs: Bytes) -> Floats:
    """The table's values, as float32, of groups: u8[n, 16 m] -> f32[n, 32 m]."""
    q = bits(qs.reshape(-1, 16), 4).reshape(len(qs), -1)
    return np.array(table, np.float32)[q]


def packer(w: Any) -> Kernel:
    """A helper of pack kernels, put(qs, to): one row's 16 bytes into the group at `to`, which is the row's lane."""

    def put(qs, to):
        for t in range(4):
            w.store_u32(to + 32 * t, w.load_u32(qs + 4 * t))

    inlined: Kernel = w.inline(put)
    return inlined


def fifth_bits_packer(w: Any) -> Kernel:
    """A helper of pack kernels, put(qh, to): the four bytes of a row's fifth bits as bytes whose bit t is step t's."""

    def put(qh, to):
        for j in range(4):  # collect bits j, j + 4, j + 8 ... into one byte
            b = (w.load_u32(qh) >> j) & 0x11111111
            b = (b | b >> 3) & 0x03030303
            b = (b | b >> 6) & 0x000F000F
            w.store_u8(to + j, b | b >> 12)

    inlined: Kernel = w.inline(put)
    return inlined


def expander(w: Any, table: Sequence[int]) -> Kernel:
    """A helper of expand kernels, put(lane, d, out): write d times the 32 table values of a row, whose lane is at `lane`."""
    value = w.table(table)

    def put(lane, d, out):
        for i in range(16):
            b = w.load_u8(lane + 32 * (i // 4) + i % 4)
            w.store_f32(out + 4 * i, d * w.to_f32(value(b & 15)))
            w.store_f32(out + 4 * i + 64, d * w.to_f32(value(b >> 4)))

    inlined: Kernel = w.inline(put)
    return inlined
