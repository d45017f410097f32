"""IQ3_XXS: 256 values in 98 bytes, eight runs of 32; value = d * (2 s + 1) / 4 * grid value * sign.

d f16, qs u8[64], then a u32 per run. A byte of qs is an index of the grid, four even values of 4..62 each. A run's word
is four times seven bits of signs for eight values, lowest first, and the scale s in its top four bits.
Source: ggml-common.h, block_iq3_xxs, iq3xxs_grid, ksigns_iq2xs.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .base import Bytes, Floats, Format, Kernel, f16, split
from .coded import Coded
from .grids import grid, grid_words, sign_spreader, signs_of_seven, with_signs
from .places import code_putter

_HALVES = (2, 6, 10, 14, 18, 22, 26, 31)  # of the grid's values: sums of half a group then fit int16
CODED = Coded(_HALVES + tuple(-v for v in _HALVES), bits=4, scales=1, factor=1 / 2)


def _dequantize(groups: Bytes) -> Floats:
    d, qs, runs = split(groups, 2, 64, 32)
    words = np.ascontiguousarray(runs).view("<u4")
    signs = signs_of_seven(words[:, :, None] >> np.arange(0, 28, 7, dtype=np.uint32))
    return CODED.meaning(f16(d), 2 * (words >> 28) + 1, with_signs(grid("IQ3_XXS")[qs], signs, 3))


def pack(w: Any) -> Kernel:
    put, entry, signs = code_putter(w, 4), w.table(grid_words("IQ3_XXS"), 64), sign_spreader(w)

    def eight(p, s):
        return entry(w.load_u8(p)) | entry(w.load_u8(p + 1)) << 32 | signs(s & 127) << 3

    codes = w.inline(eight)

    def kernel(src, row_bytes, rows, dst, supers):
        for r in range(8):
            p, o = src + min(r, rows - 1) * row_bytes, dst
            for _ in range(supers):
                for g in range(8):
                    q, s = p + 2 + 8 * g, w.load_u32(p + 66 + 4 * g)
                    put(o + 4 * r, codes(q, s), codes(q + 2, s >> 7), codes(q + 4, s >> 14), codes(q + 6, s >> 21))
                    w.store_u8(o + 128 + r, 2 * (s >> 28) + 1)
                    o += 136
                w.store_u16(o + 2 * r, w.load_u16(p))
                p, o = p + 98, o + 16

    return kernel


FORMAT = Format("IQ3_XXS", 18, 256, 98, _dequantize, CODED.packed(pack))
