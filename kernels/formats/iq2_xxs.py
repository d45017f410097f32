"""IQ2_XXS: 256 values in 66 bytes, eight runs of 32; value = d * (2 s + 1) / 8 * grid value * sign.

d f16, then per run: four u8 indices of the grid (eight values of 8, 25 or 43 each) and a u32: four times seven bits of
signs, lowest first, and the scale s in its top four bits. Source: ggml-common.h, block_iq2_xxs, iq2xxs_grid, ksigns_iq2xs.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .base import Bytes, Floats, Format, Kernel, f16, split
from .coded import Coded
from .grids import grid, grid_words, sign_spreader, signs_of_seven, with_signs
from .places import code_putter

CODED = Coded((8, 25, 43, 0, -8, -25, -43, 0), bits=3, scales=1, factor=1 / 8)


def _dequantize(groups: Bytes) -> Floats:
    d, runs = split(groups, 2, 64)
    words = np.ascontiguousarray(runs).view("<u4").reshape(-1, 8, 2)
    index = np.ascontiguousarray(words[:, :, 0]).view(np.uint8)
    signs = signs_of_seven(words[:, :, 1:] >> np.arange(0, 28, 7, dtype=np.uint32))
    return CODED.meaning(f16(d), 2 * (words[:, :, 1] >> 28) + 1, with_signs(grid("IQ2_XXS")[index], signs, 2))


def pack(w: Any) -> Kernel:
    put, entry, signs = code_putter(w, 3), w.table(grid_words("IQ2_XXS"), 64), sign_spreader(w)

    def eight(p, s):
        return entry(w.load_u8(p)) | signs(s & 127) << 2

    codes = w.inline(eight)

    def kernel(src, row_bytes, rows, dst, supers):
        for r in range(8):
            p, o = src + min(r, rows - 1) * row_bytes, dst
            for _ in range(supers):
                for g in range(8):
                    q, s = p + 2 + 8 * g, w.load_u32(p + 6 + 8 * g)
                    put(o + 4 * r, codes(q, s), codes(q + 1, s >> 7), codes(q + 2, s >> 14), codes(q + 3, s >> 21))
                    w.store_u8(o + 96 + r, 2 * (s >> 28) + 1)
                    o += 104
                w.store_u16(o + 2 * r, w.load_u16(p))
                p, o = p + 66, o + 16

    return kernel


FORMAT = Format("IQ2_XXS", 16, 256, 66, _dequantize, CODED.packed(pack))
