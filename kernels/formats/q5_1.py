"""Q5_1: 32 values in 24 bytes, value = d * q + m with q in 0..31.

d f16, m f16, qh u8[4]: bit i is the fifth bit of value i; qs u8[16]: the low nibbles are the other four bits of values
0..15, the high ones those of 16..31. Source: ggml-common.h, block_q5_1.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .base import Bytes, Codes, Floats, Format, Kernel, Packed, bits, f16, split
from .nibbles import fifth_bits_packer, packer


def _dequantize(groups: Bytes) -> Floats:
    d, m, qh, qs = split(groups, 2, 2, 4, 16)
    low = bits(qs, 4).reshape(-1, 32)
    high = np.unpackbits(qh, axis=1, bitorder="little")
    q = (low | high << np.uint8(4)).astype(np.float32)
    values: Floats = f16(d) * q + f16(m)
    return values


def tile(w: Any) -> Kernel:
    """Packed: 4 x 32 bytes (low nibbles are steps 0-3, high ones 4-7), 32 bytes whose bit t is step t's fifth bit, d f16[8],
    m f16[8].

    The integer sum is of q - 16, which fits int16. Per group: acc = fma(m, scaled sum, acc), acc = fma(16 d, scaled sum, acc),
    then acc = fma(integer sum, d * scale, acc).
    """

    def kernel(p, x, groups, y, stride, flags, ahead):
        acc = w.zero()
        for _ in range(groups):
            w.fetch(p + ahead)
            a = w.mac(w.start(x, 4), p, x)
            d = w.half(p + w.CODES)
            acc = w.fma_m(w.fma_m(acc, w.half(p + w.CODES + 16), x), w.sixteen_times(d), x)
            acc = w.fma_dx(acc, w.total(a), d, x)
            p, x = p + w.STRIDE, x + w.GROUP
        w.store(y, stride, acc, flags)

    return kernel


def pack(w: Any) -> Kernel:
    put, put_fifths = packer(w), fifth_bits_packer(w)

    def kernel(src, row_bytes, rows, dst, groups):
        for r in range(8):
            p, o = src + min(r, rows - 1) * row_bytes, dst
            for _ in range(groups):
                put(p + 8, o + 4 * r)
                put_fifths(p + 4, o + 128 + 4 * r)
                w.store_u16(o + 160 + 2 * r, w.load_u16(p))
                w.store_u16(o + 176 + 2 * r, w.load_u16(p + 2))
                p, o = p + 24, o + 192

    return kernel


def expand(w: Any) -> Kernel:
    def kernel(p, lane, out, groups):
        for _ in range(groups):
            d, m = w.load_f16(p + 160 + 2 * lane), w.load_f16(p + 176 + 2 * lane)
            for i in range(16):
                b, h = (
                    w.load_u8(p + 32 * (i // 4) + 4 * lane + i % 4),
                    w.load_u8(p + 128 + 4 * lane + i % 4) >> (i // 4),
                )
                w.store_f32(out + 4 * i, d * w.to_f32(b & 15 | (h & 1) << 4) + m)
                w.store_f32(out + 4 * i + 64, d * w.to_f32(b >> 4 | (h >> 4 & 1) << 4) + m)
            p, out = p + 192, out + 128

    return kernel


FORMAT = Format("Q5_1", 7, 32, 24, _dequantize, Packed(32, Codes("five_bits"), 32, tile, pack, expand))
