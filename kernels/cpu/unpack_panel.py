"""The kernel that unpacks rows into a panel: codes become bytes, everything else is copied. The layout is in `panels.py`."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from ..formats.base import Kernel, Packed
from . import simd
from .groups import BOTH, steps_of
from .panels import CODES, ROW_GROUPS, packed_layout, panel_layout
from .simd import word
from .vector import I8, I64, i64, pointer, void

_AHEAD = 2048
_BYTES16 = ir.VectorType(I8, 16)


def make_unpack(packed: Packed) -> Kernel:
    """Source of the kernel (p, out, units): eight packed rows into one of a panel's two row groups."""
    narrow, wide, groups = packed_layout(packed), panel_layout(packed), packed.groups
    spread, fetch = _spread(packed), _fetch(narrow.stride)
    copy_head, copy_rest, copy_tail = _copy(packed.head), _copy(packed.rest), _copy(packed.tail)
    head, codes, stride, tail = narrow.head, narrow.codes, narrow.stride, narrow.tail
    wide_head, wide_stride, next_unit = wide.head, wide.stride, ROW_GROUPS * wide.unit
    wide_tail = wide.head + groups * wide.stride

    def kernel(p, out, units):
        for _ in range(units):
            copy_head(p, out)
            p, o = p + head, out + wide_head
            for _ in range(groups):
                fetch(p)
                spread(p, o)
                copy_rest(p + codes, o + CODES)
                p, o = p + stride, o + wide_stride
            copy_tail(p, out + wide_tail)
            p, out = p + tail, out + next_unit

    return kernel


def _spread(packed: Packed) -> Any:
    """A word that writes the eight steps of a group, one vector each."""
    steps = steps_of(packed)

    @word(void, i64, i64)
    def spread(b: ir.IRBuilder, p: ir.Value, out: ir.Value) -> None:
        for step, v in steps.values(b, p, BOTH):
            b.store(v, pointer(b, b.add(out, I64(32 * step)), v.type), align=1)

    return spread


def _copy(count: int) -> Any:
    """A word that copies `count` bytes, rounded up to 16: parts of a panel are padded."""

    @word(void, i64, i64)
    def copy(b: ir.IRBuilder, p: ir.Value, out: ir.Value) -> None:
        for i in range(0, count, 16):
            v = b.load(pointer(b, b.add(p, I64(i)), _BYTES16), align=1)
            b.store(v, pointer(b, b.add(out, I64(i)), _BYTES16), align=1)

    return copy


def _fetch(count: int) -> Any:
    """A word that prefetches a group."""

    @word(void, i64)
    def fetch(b: ir.IRBuilder, p: ir.Value) -> None:
        for line in range(-(-count // 64)):
            simd.prefetch_line(b, b.add(p, I64(_AHEAD + 64 * line)))

    return fetch
