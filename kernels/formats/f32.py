"""F32: plain single precision; a "group" is one value of four bytes."""

from __future__ import annotations

from typing import Any

import numpy as np

from .base import Bytes, Floats, Format, Kernel, Packed
from .plain import tile


def _dequantize(groups: Bytes) -> Floats:
    return np.ascontiguousarray(groups).view("<f4").astype(np.float32, copy=False)


def pack(w: Any) -> Kernel:
    def kernel(src, row_bytes, rows, dst, columns):
        for r in range(8):
            p, o = src + min(r, rows - 1) * row_bytes, dst + 4 * r
            for i in range(columns):
                w.store_u32(o + 32 * i, w.load_u32(p + 4 * i))

    return kernel


def expand(w: Any) -> Kernel:
    def kernel(p, lane, out, columns):
        for i in range(columns):
            w.store_f32(out + 4 * i, w.load_f32(p + 32 * i + 4 * lane))

    return kernel


FORMAT = Format("F32", 0, 1, 4, _dequantize, Packed(1, None, 32, tile, pack, expand))
