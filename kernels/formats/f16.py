"""F16: plain half precision; a "group" is one value of two bytes. Every one is exact in float32."""

from __future__ import annotations

from typing import Any

from .base import Format, Kernel, Packed, f16
from .plain import pack_halves, tile


def expand(w: Any) -> Kernel:
    def kernel(p, lane, out, columns):
        for i in range(columns):
            w.store_f32(out + 4 * i, w.load_f16(p + 16 * i + 2 * lane))

    return kernel


FORMAT = Format("F16", 1, 1, 2, f16, Packed(1, None, 16, tile, pack_halves, expand))
