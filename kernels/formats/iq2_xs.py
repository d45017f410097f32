"""IQ2_XS: 256 values in 74 bytes, sixteen runs of 16; value = d * (2 s + 1) / 8 * grid value * sign.

d f16, qs u16[32], scales u8[8]. Nine bits of qs are an index of the grid (eight values of 8, 25 or 43 each), the upper
seven its signs. Nibbles of scales, the low ones first, are s. Source: ggml-common.h, block_iq2_xs, iq2xs_grid.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .base import Bytes, Floats, Format, Kernel, f16, split
from .coded import Coded
from .grids import grid, grid_words, nibble_pairs, sign_spreader, signs_of_seven, with_signs
from .places import code_putter

CODED = Coded((8, 25, 43, 0, -8, -25, -43, 0), bits=3, scales=2, factor=1 / 8)


def _dequantize(groups: Bytes) -> Floats:
    d, qs, scales = split(groups, 2, 64, 8)
    words = np.ascontiguousarray(qs).view("<u2")
    codes = with_signs(grid("IQ2_XS")[words & 511], signs_of_seven(words >> np.uint16(9)), 2)
    return CODED.meaning(f16(d), 2 * nibble_pairs(scales) + 1, codes)


def pack(w: Any) -> Kernel:
    put, entry, signs = code_putter(w, 3), w.table(grid_words("IQ2_XS"), 64), sign_spreader(w)

    def eight(p):
        q = w.load_u16(p)
        return entry(q & 511) | signs(q >> 9) << 2

    codes = w.inline(eight)

    def kernel(src, row_bytes, rows, dst, supers):
        for r in range(8):
            p, o = src + min(r, rows - 1) * row_bytes, dst
            for _ in range(supers):
                for g in range(8):
                    q, s = p + 2 + 8 * g, w.load_u8(p + 66 + g)
                    put(o + 4 * r, codes(q), codes(q + 2), codes(q + 4), codes(q + 6))
                    w.store_u16(o + 96 + 2 * r, 2 * (s & 15) + 1 | (2 * (s >> 4) + 1) << 8)
                    o += 112
                w.store_u16(o + 2 * r, w.load_u16(p))
                p, o = p + 74, o + 16

    return kernel


FORMAT = Format("IQ2_XS", 17, 256, 74, _dequantize, CODED.packed(pack))
