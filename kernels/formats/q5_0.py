"""Q5_0: 32 values in 22 bytes, value = d * (q - 16) with q in 0..31.

d f16, qh u8[4]: bit i is the fifth bit of value i; qs u8[16]: the low nibbles are the other four bits of values 0..15,
the high ones those of 16..31. Source: ggml-common.h, block_q5_0.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .base import Bytes, Codes, Floats, Format, Kernel, Packed, bits, f16, split


def _dequantize(groups: Bytes) -> Floats:
    d, qh, qs = split(groups, 2, 4, 16)
    low = bits(qs, 4).reshape(-1, 32)
    high = np.unpackbits(qh, axis=1, bitorder="little")
    q = (low | high << np.uint8(4)).astype(np.int8) - np.int8(16)
    values: Floats = f16(d) * q.astype(np.float32)
    return values


def tile(w: Any) -> Kernel:
    """Packed: 4 x 32 bytes (low nibbles are steps 0-3, high ones 4-7), 32 bytes whose bit t is step t's fifth bit, d f16[8].

    The integer sum starts from minus 16 times the activations. Per group: acc = fma(integer sum, d * scale, acc).
    """

    def kernel(p, x, groups, y, stride, flags, ahead):
        acc = w.zero()
        for _ in range(groups):
            w.fetch(p + ahead)
            a = w.mac(w.start(x, 4), p, x)
            acc = w.fma_dx(acc, w.total(a), w.half(p + w.CODES), x)
            p, x = p + w.STRIDE, x + w.GROUP
        w.store(y, stride, acc, flags)

    return kernel


def pack(w: Any) -> Kernel:
    def kernel(src, row_bytes, rows, dst, groups):
        for r in range(8):
            p, o = src + min(r, rows - 1) * row_bytes, dst
            for _ in range(groups):
                for t in range(4):
                    w.store_u32(o + 32 * t + 4 * r, w.load_u32(p + 6 + 4 * t))
                qh = w.load_u32(p + 2)
                for j in range(4):  # collect bits j, j + 4, j + 8 ... into one byte
                    b = (qh >> j) & 0x11111111
                    b = (b | b >> 3) & 0x03030303
                    b = (b | b >> 6) & 0x000F000F
                    w.store_u8(o + 128 + 4 * r + j, b | b >> 12)
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
