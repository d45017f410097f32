"""Q2_K: 256 values in 84 bytes, sixteen runs of 16; value = d * scale * q - dmin * min with q in 0..3.

scales u8[16], qs u8[64], d f16, dmin f16. Byte i of scales is run i's: the low nibble its scale, the high one its min. The
bit pairs of each half of qs are four times 32 values. Source: ggml-common.h, block_q2_K; ggml-quants.c, dequantize_row_q2_K.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .base import Bytes, Codes, Floats, Format, Kernel, Packed, bits, f16, split


def _dequantize(groups: Bytes) -> Floats:
    scales, qs, d, dmin = split(groups, 16, 64, 2, 2)
    q = bits(qs.reshape(-1, 32), 2).reshape(-1, 16, 16).astype(np.float32)
    step = f16(d) * (scales & 15).astype(np.float32)
    offset = f16(dmin) * (scales >> 4).astype(np.float32)
    values: Floats = step[:, :, None] * q - offset[:, :, None]
    return values.reshape(-1, 256)


def tile(w: Any) -> Kernel:
    """Packed, per 256: eight groups of 2 x 32 bytes (bit pair t of the first is step t, of the second step t + 4) and eight
    pairs of bytes, scale below min, one per half; then d f16[8], dmin f16[8].

    Per group: s = fma(sum of scale * integer sum over both halves, activation scale, s),
    u = fma(minus the sum of min * activations over both halves, activation scale, u). Per 256: acc = fma(d, s, acc), then
    acc = fma(dmin, u, acc).
    """

    def kernel(p, x, supers, y, stride, flags, ahead):
        acc = w.zero()
        for _ in range(supers):
            s, u = w.zero(), w.zero()
            for _ in range(8):
                w.fetch(p + ahead)
                i = w.scaled(w.dot_low(p, x), w.first_u4(p + w.CODES))
                i = w.add(i, w.scaled(w.dot_high(p, x), w.second_u4(p + w.CODES)))
                s = w.fma_x(s, i, x)
                i = w.scaled(w.start_low(x, 0), w.first_high4(p + w.CODES))
                i = w.add(i, w.scaled(w.start_high(x, 0), w.second_high4(p + w.CODES)))
                u = w.fma_x(u, i, x)
                p, x = p + w.STRIDE, x + w.GROUP
            acc = w.fma_d(w.fma_d(acc, w.half(p), s), w.half(p + 16), u)
            p += w.TAIL
        w.store(y, stride, acc, flags)

    return kernel


def pack(w: Any) -> Kernel:
    def get_step(p, g, t):
        """Step t of the 32 values number g: four values in as many bytes."""
        return w.load_u32(p + 16 + 32 * (g // 4) + 4 * t) >> (2 * (g % 4)) & 0x03030303

    step = w.inline(get_step)

    def kernel(src, row_bytes, rows, dst, supers):
        for r in range(8):
            p, o = src + min(r, rows - 1) * row_bytes, dst
            for _ in range(supers):
                for g in range(8):
                    for half in range(2):
                        q = 0
                        for t in range(4):
                            q |= step(p, g, 4 * half + t) << (2 * t)
                        w.store_u32(o + 32 * half + 4 * r, q)
                    w.store_u16(o + 64 + 2 * r, w.load_u16(p + 2 * g))
                    o += 80
                w.store_u16(o + 2 * r, w.load_u16(p + 80))
                w.store_u16(o + 16 + 2 * r, w.load_u16(p + 82))
                p, o = p + 84, o + 32

    return kernel


def expand(w: Any) -> Kernel:
    def kernel(p, lane, out, supers):
        for _ in range(supers):
            d, dmin = w.load_f16(p + 640 + 2 * lane), w.load_f16(p + 656 + 2 * lane)
            for i in range(16):  # the halves of eight groups
                at = p + 80 * (i // 2) + 4 * lane + 32 * (i % 2)
                both = w.load_u8(p + 80 * (i // 2) + 64 + 2 * lane + i % 2)
                step, offset = d * w.to_f32(both & 15), dmin * w.to_f32(both >> 4)
                for j in range(16):
                    q = w.load_u8(at + j % 4) >> (2 * (j // 4)) & 3
                    w.store_f32(out + 64 * i + 4 * j, step * w.to_f32(q) - offset)
            p, out = p + 672, out + 1024

    return kernel


# Two bits are unpacked so quickly that panels lose: 112 against 127 GOP/s.
_PACKED = Packed(256, Codes("two_bits"), 16, tile, pack, expand, tail=32, panels=False)
FORMAT = Format("Q2_K", 10, 256, 84, _dequantize, _PACKED)
