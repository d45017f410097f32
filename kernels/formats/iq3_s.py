"""IQ3_S: 256 values in 110 bytes, eight runs of 32; value = d * (2 s + 1) * grid value * sign.

d f16, qs u8[64], qh u8[8], signs u8[32], scales u8[4]. An index of the grid (four odd values of 1..15 each) is a byte of
qs and a bit of qh, lowest first. Bits of signs, lowest first, are set where a value is negative. Nibbles of scales, the
low ones first, are s. Source: ggml-common.h, block_iq3_s, iq3s_grid.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .base import Bytes, Floats, Format, Kernel, f16, split
from .coded import Coded
from .grids import grid, grid_words, nibble_pairs, with_signs
from .places import code_putter, spreader

CODED = Coded((*range(1, 17, 2), *range(-1, -17, -2)), bits=4, scales=1)


def _dequantize(groups: Bytes) -> Floats:
    d, qs, qh, signs, scales = split(groups, 2, 64, 8, 32, 4)
    high = np.unpackbits(qh, axis=1, bitorder="little").astype(np.uint16)
    codes = with_signs(grid("IQ3_S")[qs | high << np.uint16(8)], signs, 3)
    return CODED.meaning(f16(d), 2 * nibble_pairs(scales) + 1, codes)


def pack(w: Any) -> Kernel:
    put, entry, spread = code_putter(w, 4), w.table(grid_words("IQ3_S"), 64), spreader(w)

    def eight(p, high, signs):
        low = entry(w.load_u8(p) | (high & 1) << 8)
        return low | entry(w.load_u8(p + 1) | (high & 2) << 7) << 32 | spread(signs & 255) << 3

    codes = w.inline(eight)

    def kernel(src, row_bytes, rows, dst, supers):
        for r in range(8):
            p, o = src + min(r, rows - 1) * row_bytes, dst
            for _ in range(supers):
                for g in range(8):
                    q, h, s = p + 2 + 8 * g, w.load_u8(p + 66 + g), w.load_u32(p + 74 + 4 * g)
                    a, b = codes(q, h, s), codes(q + 2, h >> 2, s >> 8)
                    put(o + 4 * r, a, b, codes(q + 4, h >> 4, s >> 16), codes(q + 6, h >> 6, s >> 24))
                    w.store_u8(o + 128 + r, 2 * (w.load_u8(p + 106 + g // 2) >> 4 * (g % 2) & 15) + 1)
                    o += 136
                w.store_u16(o + 2 * r, w.load_u16(p))
                p, o = p + 110, o + 16

    return kernel


FORMAT = Format("IQ3_S", 21, 256, 110, _dequantize, CODED.packed(pack))
