"""Q3_K: 256 values in 110 bytes, sixteen runs of 16; value = d * (scale - 32) * (q - 4) with q in 0..7.

hmask u8[32], qs u8[64], scales u8[12], d f16. Bit g of hmask[i] is the third bit of value i of the 32 values number g; the
bit pairs of each half of qs are the lower two bits of four times 32 values. Six-bit scale i: nibble i of scales[0..7], all
the low ones first, and bit pair i of scales[8..11] above it, likewise. Source: ggml-common.h, block_q3_K; ggml-quants.c,
dequantize_row_q3_K.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .base import Bytes, Codes, Floats, Format, Kernel, Packed, bits, f16, split
from .q6_k import make_tile


def _dequantize(groups: Bytes) -> Floats:
    hmask, qs, low_scales, high_scales, d = split(groups, 32, 64, 8, 4, 2)
    low = bits(qs.reshape(-1, 32), 2).reshape(-1, 16, 16)
    high = bits(hmask, 1).reshape(-1, 16, 16)
    q = (low | high << np.uint8(2)).astype(np.int8) - np.int8(4)
    scale = bits(low_scales, 4).reshape(-1, 16) | bits(high_scales, 2).reshape(-1, 16) << np.uint8(4)
    step = f16(d) * (scale.astype(np.int8) - np.int8(32)).astype(np.float32)
    values: Floats = step[:, :, None] * q.astype(np.float32)
    return values.reshape(-1, 256)


# Packed, per 256: eight groups of 3 x 32 bytes (`three_bits` of cpu/unpack.py) and eight pairs of the scales minus 32, int8;
# then d f16[8].
tile = make_tile(bits=2)


def pack(w: Any) -> Kernel:
    def get_step(p, g, t):
        """Step t of the 32 values number g: four values in as many bytes."""
        low = w.load_u32(p + 32 + 32 * (g // 4) + 4 * t) >> (2 * (g % 4)) & 0x03030303
        return low | (w.load_u32(p + 4 * t) >> g & 0x01010101) << 2

    step = w.inline(get_step)

    def kernel(src, row_bytes, rows, dst, supers):
        for r in range(8):
            p, o = src + min(r, rows - 1) * row_bytes, dst
            for _ in range(supers):
                for g in range(8):
                    third, seventh = step(p, g, 3), step(p, g, 7)
                    tops = (third & 0x04040404) << 4 | (seventh & 0x04040404) << 5
                    first = step(p, g, 0) | step(p, g, 1) << 3 | (third & 0x03030303) << 6
                    last = step(p, g, 5) | step(p, g, 6) << 3 | (seventh & 0x03030303) << 6
                    w.store_u32(o + 4 * r, first)
                    w.store_u32(o + 32 + 4 * r, step(p, g, 2) | step(p, g, 4) << 3 | tops)
                    w.store_u32(o + 64 + 4 * r, last)
                    for i in range(2 * g, 2 * g + 2):
                        low = w.load_u8(p + 96 + i % 8) >> (4 * (i // 8)) & 15
                        high = w.load_u8(p + 104 + i % 4) >> (2 * (i // 4)) & 3
                        w.store_u8(o + 96 + 2 * r + i % 2, (low | high << 4) - 32)
                    o += 112
                w.store_u16(o + 2 * r, w.load_u16(p + 108))
                p, o = p + 110, o + 16

    return kernel


def expand(w: Any) -> Kernel:
    def kernel(p, lane, out, supers):
        for _ in range(supers):
            d = w.load_f16(p + 896 + 2 * lane)
            for _ in range(8):
                low = d * w.to_f32(w.load_s8(p + 96 + 2 * lane))
                high = d * w.to_f32(w.load_s8(p + 97 + 2 * lane))
                for j in range(4):
                    at, to = p + 4 * lane + j, out + 4 * j
                    u, v, t = w.load_u8(at), w.load_u8(at + 32), w.load_u8(at + 64)
                    w.store_f32(to, low * w.to_f32((u & 7) - 4))
                    w.store_f32(to + 16, low * w.to_f32((u >> 3 & 7) - 4))
                    w.store_f32(to + 32, low * w.to_f32((v & 7) - 4))
                    w.store_f32(to + 48, low * w.to_f32((u >> 6 | v >> 4 & 4) - 4))
                    w.store_f32(to + 64, high * w.to_f32((v >> 3 & 7) - 4))
                    w.store_f32(to + 80, high * w.to_f32((t & 7) - 4))
                    w.store_f32(to + 96, high * w.to_f32((t >> 3 & 7) - 4))
                    w.store_f32(to + 112, high * w.to_f32((t >> 6 | v >> 5 & 4) - 4))
                p, out = p + 112, out + 128
            p += 16

    return kernel


FORMAT = Format("Q3_K", 11, 256, 110, _dequantize, Packed(256, Codes("three_bits"), 16, tile, pack, expand, tail=16))
