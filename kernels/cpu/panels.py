"""Panels: sixteen weight rows unpacked into a thread's scratch, which all tokens of a prefill pass then read.

Unpacking costs about as much as multiplying with two tokens, and is done once instead of for every four. A panel keeps a
format's units: its codes become bytes of their own (256 of a group), everything else is copied as it is, and all parts are
aligned to 32 bytes. The units of two row groups alternate. So one source of a tile kernel serves packed rows and panels.
Next hop: `unpack_panel.py` writes them.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..formats.base import Packed

ROW_GROUPS = 2
"""Groups of eight rows in a panel, or of plain rows that are multiplied at once."""
TOKENS, PLAIN_TOKENS = 4, 3
"""Rows of activations that pass at once; plain weights have two chains of sums: twelve, of sixteen registers."""
CODES = 256
"""Bytes of a group's codes in a panel: one each."""
_ALIGN = 32


@dataclass(frozen=True)
class Layout:
    """Bytes: a group's codes, from one group to the next, before and behind the groups of a unit (to the next unit); unit."""

    codes: int
    stride: int
    head: int
    tail: int
    unit: int


def packed_layout(packed: Packed) -> Layout:
    """Of eight packed rows."""
    assert packed.codes is not None
    codes = packed.codes.group_bytes
    return Layout(codes, codes + packed.rest, packed.head, packed.tail, packed.unit_bytes)


def panel_layout(packed: Packed) -> Layout:
    """Of a row group in a panel: the next unit of the same row group lies behind one of the other."""
    head, rest, tail = (-(-n // _ALIGN) * _ALIGN for n in (packed.head, packed.rest, packed.tail))
    stride = CODES + rest
    unit = head + packed.groups * stride + tail
    if packed.groups == 1:
        return Layout(CODES, ROW_GROUPS * unit, head, tail, unit)
    return Layout(CODES, stride, head, tail + (ROW_GROUPS - 1) * unit, unit)


def panel_bytes(packed: Packed, units: int) -> int:
    """Bytes of a panel; 0 for formats that are not unpacked."""
    if packed.codes is None or not packed.panels:
        return 0
    return ROW_GROUPS * units * panel_layout(packed).unit
