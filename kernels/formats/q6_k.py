"""Q6_K: 256 values in 210 bytes, sixteen runs of 16; value = d * scale * (q - 32) with q in 0..63.

ql u8[128], qh u8[64], scales i8[16], d f16. Each half of 128 values takes 64 bytes of ql and 32 of qh: the low nibbles
of ql are values 0..63, the high ones 64..127; the four bit pairs of qh are the upper bits of values 0..31, 32..63,
64..95 and 96..127. Source: ggml-common.h, block_q6_K.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .base import Bytes, Codes, Floats, Format, Kernel, Packed, bits, f16, split


def _dequantize(groups: Bytes) -> Floats:
    ql, qh, scales, d = split(groups, 128, 64, 16, 2)
    low = bits(ql.reshape(-1, 64), 4).reshape(-1, 16, 16)
    high = bits(qh.reshape(-1, 32), 2).reshape(-1, 16, 16)
    q = (low | high << np.uint8(4)).astype(np.int8) - np.int8(32)
    step = f16(d) * scales.view(np.int8).astype(np.float32)
    values: Floats = step[:, :, None] * q.astype(np.float32)
    return values.reshape(-1, 256)


def make_tile(bits: int) -> Callable[[Any], Kernel]:
    """The tile of codes that mean q - 2**bits, with two int8 scales in a group (one per 16 columns) and d f16[8] per 256.

    Integer sums start from minus 2**bits times the activations. Per group: s = fma(sum of scale * integer sum over both
    halves, activation scale, s). Per 256: acc = fma(d, s, acc).
    """

    def tile(w: Any) -> Kernel:
        def kernel(p, x, supers, y, stride, flags, ahead):
            acc = w.zero()
            for _ in range(supers):
                s = w.zero()
                for _ in range(8):
                    w.fetch(p + ahead)
                    i = w.scaled(w.mac_low(w.start_low(x, bits), p, x), w.first_s8(p + w.CODES))
                    j = w.scaled(w.mac_high(w.start_high(x, bits), p, x), w.second_s8(p + w.CODES))
                    s = w.fma_x(s, w.add(i, j), x)
                    p, x = p + w.STRIDE, x + w.GROUP
                acc = w.fma_d(acc, w.half(p), s)
                p += w.TAIL
            w.store(y, stride, acc, flags)

        return kernel

    return tile


# Packed, per 256: eight groups of 6 x 32 bytes (three bytes carry four values: steps 0-3, then 4-7) and eight pairs of int8
# scales; then d f16[8].
tile = make_tile(bits=5)


def pack(w: Any) -> Kernel:
    def kernel(src, row_bytes, rows, dst, supers):
        for r in range(8):
            p, o = src + min(r, rows - 1) * row_bytes, dst
            for _ in range(supers):
                for g in range(8):
                    ql = p + 64 * (g // 4) + 32 * (g % 2)
                    qh = p + 128 + 32 * (g // 4)
                    for half in range(2):
                        t = ql + 16 * half + 12
                        b = qh + 16 * half + 12
                        low, high = 4 * (g % 4 // 2), 2 * (g % 4)
                        f = w.load_u32(t) >> low & 0x0F0F0F0F | (w.load_u32(b) >> high & 0x03030303) << 4
                        for i in range(3):
                            t, b = ql + 16 * half + 4 * i, qh + 16 * half + 4 * i
                            v = w.load_u32(t) >> low & 0x0F0F0F0F | (w.load_u32(b) >> high & 0x03030303) << 4
                            w.store_u32(o + 96 * half + 32 * i + 4 * r, v | (f >> (2 * i) & 0x03030303) << 6)
                        w.store_u8(o + 192 + 2 * r + half, w.load_u8(p + 192 + 2 * g + half))
                    o += 208
                w.store_u16(o + 2 * r, w.load_u16(p + 208))
                p, o = p + 210, o + 16

    return kernel


def expand(w: Any) -> Kernel:
    def kernel(p, lane, out, supers):
        for _ in range(supers):
            d = w.load_f16(p + 1664 + 2 * lane)
            for i in range(16):  # the halves of eight groups
                at = p + 208 * (i // 2) + 96 * (i % 2) + 4 * lane
                step = d * w.to_f32(w.load_s8(p + 208 * (i // 2) + 192 + 2 * lane + i % 2))
                for j in range(4):
                    u, v, t = w.load_u8(at + j), w.load_u8(at + 32 + j), w.load_u8(at + 64 + j)
                    to, fourth = out + 64 * i + 4 * j, u >> 6 | v >> 6 << 2 | t >> 6 << 4
                    w.store_f32(to, step * w.to_f32((u & 63) - 32))
                    w.store_f32(to + 16, step * w.to_f32((v & 63) - 32))
                    w.store_f32(to + 32, step * w.to_f32((t & 63) - 32))
                    w.store_f32(to + 48, step * w.to_f32(fourth - 32))
            p, out = p + 1680, out + 1024

    return kernel


FORMAT = Format("Q6_K", 14, 256, 210, _dequantize, Packed(256, Codes("six_bits"), 16, tile, pack, expand, tail=16))
