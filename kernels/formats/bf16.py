"""BF16: the upper half of a float32; a "group" is one value of two bytes. Every one is exact in float32."""

from __future__ import annotations

from typing import Any

import numpy as np

from .base import Bytes, Floats, Format, Kernel, Packed
from .plain import tile


def _dequantize(groups: Bytes) -> Floats:
    upper = np.ascontiguousarray(groups).view("<u2").astype(np.uint32)
    values: Floats = (upper << np.uint32(16)).view(np.float32)
    return values


def pack(w: Any) -> Kernel:
    """Packed: as pairs of columns, whose values alternate; an odd last column as it is."""

    def kernel(src, row_bytes, rows, dst, columns):
        for r in range(8):
            p, o = src + min(r, rows - 1) * row_bytes, dst
            for i in range(columns // 2):
                w.store_u32(o + 32 * i + 4 * r, w.load_u32(p + 4 * i))
            if columns % 2 == 1:
                w.store_u16(o + 16 * (columns - 1) + 2 * r, w.load_u16(p + 2 * (columns - 1)))

    return kernel


def expand(w: Any) -> Kernel:
    def kernel(p, lane, out, columns):
        for i in range(columns // 2):
            both = w.load_u32(p + 32 * i + 4 * lane)
            w.store_u32(out + 8 * i, both << 16)
            w.store_u32(out + 8 * i + 4, both >> 16 << 16)
        if columns % 2 == 1:
            w.store_u32(out + 4 * (columns - 1), w.load_u16(p + 16 * (columns - 1) + 2 * lane) << 16)

    return kernel


FORMAT = Format("BF16", 30, 1, 2, _dequantize, Packed(1, None, 16, tile, pack, expand))
