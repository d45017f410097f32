"""Q4_0: 32 values in 18 bytes, value = d * (q - 8) with q in 0..15.

d f16, qs u8[16]: the low nibbles are values 0..15, the high ones 16..31. Source: ggml-common.h, block_q4_0.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .base import Bytes, Codes, Floats, Format, Kernel, Packed, bits, f16, split
from .nibbles import packer
from .one_scale import unsigned_tile


def _dequantize(groups: Bytes) -> Floats:
    d, qs = split(groups, 2, 16)
    q = bits(qs, 4).reshape(-1, 32).astype(np.int8) - np.int8(8)
    values: Floats = f16(d) * q.astype(np.float32)
    return values


# Packed: 4 x 32 bytes (low nibbles are steps 0-3, high ones 4-7), d f16[8].
tile = unsigned_tile(bits=3)


def pack(w: Any) -> Kernel:
    put = packer(w)

    def kernel(src, row_bytes, rows, dst, groups):
        for r in range(8):
            p, o = src + min(r, rows - 1) * row_bytes, dst
            for _ in range(groups):
                put(p + 2, o + 4 * r)
                w.store_u16(o + 128 + 2 * r, w.load_u16(p))
                p, o = p + 18, o + 144

    return kernel


def expand(w: Any) -> Kernel:
    def kernel(p, lane, out, groups):
        for _ in range(groups):
            d = w.load_f16(p + 128 + 2 * lane)
            for i in range(16):
                b = w.load_u8(p + 32 * (i // 4) + 4 * lane + i % 4)
                w.store_f32(out + 4 * i, d * w.to_f32((b & 15) - 8))
                w.store_f32(out + 4 * i + 64, d * w.to_f32((b >> 4) - 8))
            p, out = p + 144, out + 128

    return kernel


FORMAT = Format("Q4_0", 2, 32, 18, _dequantize, Packed(32, Codes("nibbles"), 16, tile, pack, expand))
