"""Q1_0: 128 values in 18 bytes, value = d where a bit is set and -d where it is not.

d f16, qs u8[16]: value i is bit i % 8, lowest first, of byte i // 8. Source: ggml-common.h, block_q1_0; ggml-quants.c,
dequantize_row_q1_0.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .base import Bytes, Floats, Format, Kernel, f16, split
from .coded import Coded
from .places import code_putter, spreader

CODED = Coded((-1, 1), bits=1, groups=4)


def _dequantize(groups: Bytes) -> Floats:
    d, qs = split(groups, 2, 16)
    return CODED.meaning(f16(d), np.ones((1, 1)), np.unpackbits(qs, axis=1, bitorder="little"))


def pack(w: Any) -> Kernel:
    put, spread = code_putter(w, 1), spreader(w)

    def kernel(src, row_bytes, rows, dst, units):
        for r in range(8):
            p, o = src + min(r, rows - 1) * row_bytes, dst
            for _ in range(units):
                for g in range(4):
                    v = w.load_u32(p + 2 + 4 * g)
                    put(o + 4 * r, spread(v & 255), spread(v >> 8 & 255), spread(v >> 16 & 255), spread(v >> 24))
                    o += 32
                w.store_u16(o + 2 * r, w.load_u16(p))
                p, o = p + 18, o + 16

    return kernel


FORMAT = Format("Q1_0", 41, 128, 18, _dequantize, CODED.packed(pack))
