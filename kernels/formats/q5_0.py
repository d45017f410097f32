"""Q5_0: 32 values in 22 bytes, value = d * (q - 16) with q in 0..31.

d f16, qh u8[4]: bit i is the fifth bit of value i; qs u8[16]: the low nibbles are the other four bits of values 0..15,
the high ones those of 16..31. Source: ggml-common.h, block_q5_0.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .base import Bytes, Codes, Floats, Format, Kernel, Packed, bits, f16, split
from .nibbles import fifth_bits_packer, packer
from .one_scale import unsigned_tile


def _dequantize(groups: Bytes) -> Floats:
    d, qh, qs = split(groups, 2, 4, 16)
    low = bits(qs, 4).reshape(-1, 32)
    high = np.unpackbits(qh, axis=1, bitorder="little")
    q = (low | high << np.uint8(4)).astype(np.int8) - np.int8(16)
    values: Floats = f16(d) * q.astype(np.float32)
    return values


# Packed: 4 x 32 bytes (low nibbles are steps 0-3, high ones 4-7), 32 bytes whose bit t is step t's fifth bit, d f16[8].
tile = unsigned_tile(bits=4)


def pack(w: Any) -> Kernel:
    put, put_fifths = packer(w), fifth_bits_packer(w)

    def kernel(src, row_bytes, rows, dst, groups):
        for r in range(8):
            p, o = src + min(r, rows - 1) * row_bytes, dst
            for _ in range(groups):
                put(p + 6, o + 4 * r)
                put_fifths(p + 2, o + 128 + 4 * r)
                w.store_u16(o + 160 + 2 * r, w.load_u16(p))
                p, o = p + 22, o + 176

    return kernel


def expand(w: Any) -> Kernel:
    def kernel(p, lane, out, groups):
        for _ in range(groups):
            d = w.load_f16(p + 160 + 2 * lane)
            for i in range(16):
                b, h = (
                    w.load_u8(p + 32 * (i // 4) + 4 * lane + i % 4),
                    w.load_u8(p + 128 + 4 * lane + i % 4) >> (i // 4),
                )
                w.store_f32(out + 4 * i, d * w.to_f32((b & 15 | (h & 1) << 4) - 16))
                w.store_f32(out + 4 * i + 64, d * w.to_f32((b >> 4 | (h >> 4 & 1) << 4) - 16))
            p, out = p + 176, out + 128

    return kernel


FORMAT = Format("Q5_0", 6, 32, 22, _dequantize, Packed(32, Codes("five_bits"), 16, tile, pack, expand))
