"""F16: plain half precision; a "group" is one value of two bytes. Every one is exact in float32."""

from __future__ import annotations

from typing import Any

from .base import Format, Kernel, Packed, f16
from .plain import tile


def pack(w: Any) -> Kernel:
    def kernel(src, row_bytes, rows, dst, columns):
        for r in range(8):
            p, o = src + min(r, rows - 1) * row_bytes, dst + 2 * r
            for i in range(columns):
                w.store_u16(o + 16 * i, w.load_u16(p + 2 * i))

    return kernel


def expand(w: Any) -> Kernel:
    def kernel(p, lane, out, columns):
        for i in range(columns):
            w.store_f32(out + 4 * i, w.load_f16(p + 16 * i + 2 * lane))

    return kernel


FORMAT = Format("F16", 1, 1, 2, f16, Packed(1, None, 16, tile, pack, expand))
