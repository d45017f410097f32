"""TQ2_0: 256 values in 66 bytes, value = d * (q - 1) with q in 0..2 (3 is not written, but means 2).

qs u8[64], d f16. Each 32 bytes of qs are 128 values: the lowest bit pairs are values 0..31, the next 32..63, and so on.
Source: ggml-common.h, block_tq2_0.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .base import Bytes, Floats, Format, Kernel, bits, f16, split
from .coded import Coded
from .places import ONES, code_putter

CODED = Coded((-1, 0, 1, 2), bits=2)


def _dequantize(groups: Bytes) -> Floats:
    qs, d = split(groups, 64, 2)
    return CODED.meaning(f16(d), np.ones((1, 1)), bits(qs.reshape(-1, 32), 2).reshape(-1, 256))


def pack(w: Any) -> Kernel:
    put = code_putter(w, 2)

    def kernel(src, row_bytes, rows, dst, supers):
        for r in range(8):
            p, o = src + min(r, rows - 1) * row_bytes, dst
            for _ in range(supers):
                for g in range(8):
                    qs, shift, mask = p + 32 * (g // 4), 2 * (g % 4), 3 * ONES
                    a, b = w.load_i64(qs) >> shift & mask, w.load_i64(qs + 8) >> shift & mask
                    c, d = w.load_i64(qs + 16) >> shift & mask, w.load_i64(qs + 24) >> shift & mask
                    put(o + 4 * r, a, b, c, d)
                    o += 64
                w.store_u16(o + 2 * r, w.load_u16(p + 64))
                p, o = p + 66, o + 16

    return kernel


FORMAT = Format("TQ2_0", 35, 256, 66, _dequantize, CODED.packed(pack))
