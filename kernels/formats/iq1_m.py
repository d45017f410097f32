"""IQ1_M: 256 values in 56 bytes, sixteen runs of 16; value = d * (2 s + 1) * (grid value + delta).

qs u8[32], qh u8[16], scales u16[4]. An index of the grid (eight values of -1, 0 or 1 each) is a byte of qs and three bits
of a nibble of qh, the low ones first; the nibble's top bit says that delta is -1/8 and not 1/8. The lower twelve bits of a
word of scales are four s, lowest first; the top four bits of all words, the first lowest, are d, an f16.
Source: ggml-common.h, block_iq1_m, iq1s_grid; ggml-quants.c, dequantize_row_iq1_m.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .base import Bytes, Floats, Format, Kernel, bits, split
from .coded import Coded
from .grids import grid, grid_words
from .places import ONES, code_putter

# Eighths: 8 * grid value + 1, and with the third bit 8 * grid value - 1. No grid has a code 3.
CODED = Coded((-7, 1, 9, 0, -9, -1, 7, 0), bits=3, scales=2, factor=1 / 8)


def _dequantize(groups: Bytes) -> Floats:
    qs, qh, scales = split(groups, 32, 16, 8)
    words = np.ascontiguousarray(scales).view("<u2")
    quarters = (words >> np.uint16(12)) << np.array([0, 4, 8, 12], np.uint16)
    d = np.bitwise_or.reduce(quarters, axis=1, keepdims=True).view("<f2").astype(np.float32)
    s = (words[:, :, None] >> np.array([0, 3, 6, 9], np.uint16) & np.uint16(7)).reshape(-1, 16)
    high = bits(qh.reshape(-1, 1), 4).reshape(-1, 32).astype(np.uint16)
    codes = grid("IQ1_M")[qs | (high & 7) << 8] | (high >> 3 << 2).astype(np.uint8)[:, :, None]
    return CODED.meaning(d, 2 * s + 1, codes.reshape(-1, 256))


def pack(w: Any) -> Kernel:
    put, entry = code_putter(w, 3), w.table(grid_words("IQ1_M"), 64)

    def eight(p, high):
        return entry(w.load_u8(p) | (high & 7) << 8) | (high >> 3 & 1) * (4 * ONES)

    codes = w.inline(eight)

    def kernel(src, row_bytes, rows, dst, supers):
        for r in range(8):
            p, o = src + min(r, rows - 1) * row_bytes, dst
            for _ in range(supers):
                for g in range(8):
                    q, h, s = p + 4 * g, w.load_u16(p + 32 + 2 * g), w.load_u16(p + 48 + 2 * (g // 2)) >> 6 * (g % 2)
                    put(o + 4 * r, codes(q, h), codes(q + 1, h >> 4), codes(q + 2, h >> 8), codes(q + 3, h >> 12))
                    w.store_u16(o + 96 + 2 * r, 2 * (s & 7) + 1 | (2 * (s >> 3 & 7) + 1) << 8)
                    o += 112
                low = w.load_u16(p + 48) >> 12 | w.load_u16(p + 50) >> 12 << 4
                w.store_u16(o + 2 * r, low | w.load_u16(p + 52) >> 12 << 8 | w.load_u16(p + 54) >> 12 << 12)
                p, o = p + 56, o + 16

    return kernel


FORMAT = Format("IQ1_M", 29, 256, 56, _dequantize, CODED.packed(pack))
