"""Q4_1: 32 values in 20 bytes, value = d * q + m with q in 0..15.

d f16, m f16, qs u8[16]: the low nibbles are values 0..15, the high ones 16..31. Source: ggml-common.h, block_q4_1.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .base import Bytes, Codes, Floats, Format, Kernel, Packed, bits, f16, split
from .nibbles import packer


def _dequantize(groups: Bytes) -> Floats:
    d, m, qs = split(groups, 2, 2, 16)
    q = bits(qs, 4).reshape(-1, 32).astype(np.float32)
    return f16(d) * q + f16(m)


def tile(w: Any) -> Kernel:
    """Packed: 4 x 32 bytes (low nibbles are steps 0-3, high ones 4-7), d f16[8], m f16[8].

    Per group: acc = fma(m, scaled sum, acc), then acc = fma(integer sum, d * scale, acc).
    """

    def kernel(p, x, groups, y, stride, flags, ahead):
        acc = w.zero()
        for _ in range(groups):
            w.fetch(p + ahead)
            a = w.dot(p, x)
            acc = w.fma_m(acc, w.half(p + w.CODES + 16), x)
            acc = w.fma_dx(acc, w.total(a), w.half(p + w.CODES), x)
            p, x = p + w.STRIDE, x + w.GROUP
        w.store(y, stride, acc, flags)

    return kernel


def pack(w: Any) -> Kernel:
    put = packer(w)

    def kernel(src, row_bytes, rows, dst, groups):
        for r in range(8):
            p, o = src + min(r, rows - 1) * row_bytes, dst
            for _ in range(groups):
                put(p + 4, o + 4 * r)
                w.store_u16(o + 128 + 2 * r, w.load_u16(p))
                w.store_u16(o + 144 + 2 * r, w.load_u16(p + 2))
                p, o = p + 20, o + 160

    return kernel


def expand(w: Any) -> Kernel:
    def kernel(p, lane, out, groups):
        for _ in range(groups):
            d, m = w.load_f16(p + 128 + 2 * lane), w.load_f16(p + 144 + 2 * lane)
            for i in range(16):
                b = w.load_u8(p + 32 * (i // 4) + 4 * lane + i % 4)
                w.store_f32(out + 4 * i, d * w.to_f32(b & 15) + m)
                w.store_f32(out + 4 * i + 64, d * w.to_f32(b >> 4) + m)
            p, out = p + 160, out + 128

    return kernel


FORMAT = Format("Q4_1", 3, 32, 20, _dequantize, Packed(32, Codes("nibbles"), 32, tile, pack, expand))
