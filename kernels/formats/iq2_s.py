"""IQ2_S: 256 values in 82 bytes, sixteen runs of 16; value = d * (2 s + 1) / 8 * grid value * sign.

d f16, qs u8[32], signs u8[32], qh u8[8], scales u8[8]. An index of the grid (eight values of 8, 25 or 43 each) is a byte
of qs and two bits of qh, lowest first. Bits of signs, lowest first, are set where a value is negative. Nibbles of scales,
the low ones first, are s. Source: ggml-common.h, block_iq2_s, iq2s_grid.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .base import Bytes, Floats, Format, Kernel, bits, f16, split
from .coded import Coded
from .grids import grid, grid_words, nibble_pairs, with_signs
from .places import code_putter, spreader

CODED = Coded((8, 25, 43, 0, -8, -25, -43, 0), bits=3, scales=2, factor=1 / 8)


def _dequantize(groups: Bytes) -> Floats:
    d, qs, signs, qh, scales = split(groups, 2, 32, 32, 8, 8)
    high = bits(qh.reshape(-1, 1), 2).reshape(-1, 32).astype(np.uint16)
    codes = with_signs(grid("IQ2_S")[qs | high << np.uint16(8)], signs, 2)
    return CODED.meaning(f16(d), 2 * nibble_pairs(scales) + 1, codes)


def pack(w: Any) -> Kernel:
    put, entry, spread = code_putter(w, 3), w.table(grid_words("IQ2_S"), 64), spreader(w)

    def eight(p, high):
        return entry(w.load_u8(p) | (high & 3) << 8) | spread(w.load_u8(p + 32)) << 2

    codes = w.inline(eight)

    def kernel(src, row_bytes, rows, dst, supers):
        for r in range(8):
            p, o = src + min(r, rows - 1) * row_bytes, dst
            for _ in range(supers):
                for g in range(8):
                    q, h, s = p + 2 + 4 * g, w.load_u8(p + 66 + g), w.load_u8(p + 74 + g)
                    put(o + 4 * r, codes(q, h), codes(q + 1, h >> 2), codes(q + 2, h >> 4), codes(q + 3, h >> 6))
                    w.store_u16(o + 96 + 2 * r, 2 * (s & 15) + 1 | (2 * (s >> 4) + 1) << 8)
                    o += 112
                w.store_u16(o + 2 * r, w.load_u16(p))
                p, o = p + 82, o + 16

    return kernel


FORMAT = Format("IQ2_S", 22, 256, 82, _dequantize, CODED.packed(pack))
