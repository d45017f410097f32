"""Q5_K: 256 values in 176 bytes, eight runs of 32; value = d * scale * q - dmin * min with q in 0..31.

d f16, dmin f16, scales u8[12] (six-bit scales and mins, as in q4_k.py), qh u8[32], qs u8[128]. Bit g of qh[i] is the fifth
bit of value i of run g. Each 32 bytes of qs are two runs: low nibbles, then high nibbles.
Source: ggml-common.h, block_q5_K.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .base import Bytes, Codes, Floats, Format, Kernel, Packed, bits, f16, split
from .q4_k import run_packer, scale_and_min_packer, scales_and_mins


def _dequantize(groups: Bytes) -> Floats:
    d, dmin, scales, qh, qs = split(groups, 2, 2, 12, 32, 128)
    scale, minimum = scales_and_mins(scales)
    low = bits(qs.reshape(-1, 32), 4).reshape(-1, 8, 32)
    q = (low | bits(qh, 1) << np.uint8(4)).astype(np.float32)
    step = f16(d) * scale.astype(np.float32)
    offset = f16(dmin) * minimum.astype(np.float32)
    values: Floats = step[:, :, None] * q - offset[:, :, None]
    return values.reshape(-1, 256)


def tile(w: Any) -> Kernel:
    """Packed, per 256: eight groups of 4 x 32 bytes (low nibbles are steps 0-3, high ones 4-7), 32 bytes whose bit t is step
    t's fifth bit, and eight (scale, min) byte pairs; then d f16[8], -dmin f16[8].

    The integer sum is of q - 16, which fits int16. Per group: s = fma(16 scale, scaled sum, s), s = fma(scale * integer sum,
    activation scale, s), u = fma(min, scaled sum, u). Per 256: acc = fma(d, s, acc), then acc = fma(-dmin, u, acc).
    """

    def kernel(p, x, supers, y, stride, flags, ahead):
        acc = w.zero()
        for _ in range(supers):
            s, u = w.zero(), w.zero()
            for _ in range(8):
                w.fetch(p + ahead)
                a = w.mac(w.start(x, 4), p, x)
                s = w.fma_m(s, w.sixteen_times(w.first_u8_f(p + w.CODES)), x)
                s = w.fma_x(s, w.scaled(a, w.first_u8(p + w.CODES)), x)
                u = w.fma_m(u, w.second_u8(p + w.CODES), x)
                p, x = p + w.STRIDE, x + w.GROUP
            acc = w.fma_d(w.fma_d(acc, w.half(p), s), w.half(p + 16), u)
            p += w.TAIL
        w.store(y, stride, acc, flags)

    return kernel


def pack(w: Any) -> Kernel:
    put_run, put_scale_and_min = run_packer(w), scale_and_min_packer(w)

    def kernel(src, row_bytes, rows, dst, supers):
        for r in range(8):
            p, o = src + min(r, rows - 1) * row_bytes, dst
            for _ in range(supers):
                for g in range(8):
                    fifths = 0
                    for t in range(8):
                        fifths |= (w.load_u32(p + 16 + 4 * t) >> g & 0x01010101) << t
                    w.store_u32(o + 128 + 4 * r, fifths)
                    put_run(p + 48, g, o + 4 * r)
                    put_scale_and_min(p + 4, g, o + 160 + 2 * r)
                    o += 176
                w.store_u16(o + 2 * r, w.load_u16(p))
                w.store_u16(o + 16 + 2 * r, w.load_u16(p + 2) ^ 0x8000)
                p, o = p + 176, o + 32

    return kernel


def expand(w: Any) -> Kernel:
    def kernel(p, lane, out, supers):
        for _ in range(supers):
            d, minus_dmin = w.load_f16(p + 1408 + 2 * lane), w.load_f16(p + 1424 + 2 * lane)
            for _ in range(8):
                step = d * w.to_f32(w.load_u8(p + 160 + 2 * lane))
                offset = minus_dmin * w.to_f32(w.load_u8(p + 161 + 2 * lane))
                for i in range(16):
                    b = w.load_u8(p + 32 * (i // 4) + 4 * lane + i % 4)
                    h = w.load_u8(p + 128 + 4 * lane + i % 4) >> (i // 4)
                    w.store_f32(out + 4 * i, step * w.to_f32(b & 15 | (h & 1) << 4) + offset)
                    w.store_f32(out + 4 * i + 64, step * w.to_f32(b >> 4 | (h >> 4 & 1) << 4) + offset)
                p, out = p + 176, out + 128
            p += 32

    return kernel


FORMAT = Format("Q5_K", 13, 256, 176, _dequantize, Packed(256, Codes("five_bits"), 16, tile, pack, expand, tail=32))
