"""BF16: the upper half of a float32; a "group" is one value of two bytes. Every one is exact in float32."""

from __future__ import annotations

from typing import Any

import numpy as np

from .base import Bytes, Floats, Format, Kernel, Packed
from .plain import pack_halves, tile


def _dequantize(groups: Bytes) -> Floats:
    upper = np.ascontiguousarray(groups).view("<u2").astype(np.uint32)
    values: Floats = (upper << np.uint32(16)).view(np.float32)
    return values


def expand(w: Any) -> Kernel:
    def kernel(p, lane, out, columns):
        for i in range(columns):
            w.store_u32(out + 4 * i, w.load_u16(p + 16 * i + 2 * lane) << 16)

    return kernel


FORMAT = Format("BF16", 30, 1, 2, _dequantize, Packed(1, None, 16, tile, pack_halves, expand))
