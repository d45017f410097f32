"""IQ4_XS: 256 values in 136 bytes, eight runs of 32; value = d * (scale - 32) * KVALUES[q] with q in 0..15.

d f16, scales_h u16, scales_l u8[4], qs u8[128]. Run g's six-bit scale: nibble g of scales_l, then bit pair g of scales_h.
Each 16 bytes of qs are a run, as in iq4_nl.py. Source: ggml-common.h, block_iq4_xs.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .base import Bytes, Codes, Floats, Format, Kernel, Packed, bits, f16, split
from .iq4_nl import KVALUES
from .nibbles import expander, look_up, packer


def _dequantize(groups: Bytes) -> Floats:
    d, scales_h, scales_l, qs = split(groups, 2, 2, 4, 128)
    low = bits(scales_l, 4).transpose(0, 2, 1).reshape(-1, 8)
    high = bits(scales_h, 2).transpose(0, 2, 1).reshape(-1, 8)
    scale = (low | high << np.uint8(4)).astype(np.int8) - np.int8(32)
    step = f16(d) * scale.astype(np.float32)
    values: Floats = step[:, :, None] * look_up(KVALUES, qs).reshape(-1, 8, 32)
    return values.reshape(-1, 256)


def tile(w: Any) -> Kernel:
    """Packed, per 256: d f16[8], then eight groups of 4 x 32 bytes (low nibbles are steps 0-3, high ones 4-7) and the scale
    minus 32, i8[8].

    The integer sum is of KVALUES[q]. Per group: acc = fma(integer sum, (d * (scale - 32)) * activation scale, acc).
    """

    def kernel(p, x, supers, y, stride, flags, ahead):
        acc = w.zero()
        for _ in range(supers):
            d = w.half(p)
            p += w.HEAD
            for _ in range(8):
                w.fetch(p + ahead)
                acc = w.fma_dx(acc, w.dot_signed(p, x), w.multiplied(d, w.eight_s8(p + w.CODES)), x)
                p, x = p + w.STRIDE, x + w.GROUP
            p += w.TAIL
        w.store(y, stride, acc, flags)

    return kernel


def pack(w: Any) -> Kernel:
    put = packer(w)

    def kernel(src, row_bytes, rows, dst, supers):
        for r in range(8):
            p, o = src + min(r, rows - 1) * row_bytes, dst
            for _ in range(supers):
                w.store_u16(o + 2 * r, w.load_u16(p))
                o += 16
                for g in range(8):
                    low, high = w.load_u8(p + 4 + g // 2) >> (4 * (g % 2)) & 15, w.load_u16(p + 2) >> (2 * g) & 3
                    put(p + 8 + 16 * g, o + 4 * r)
                    w.store_u8(o + 128 + r, (low | high << 4) - 32)
                    o += 136
                p += 136

    return kernel


def expand(w: Any) -> Kernel:
    put = expander(w, KVALUES)

    def kernel(p, lane, out, supers):
        for _ in range(supers):
            d = w.load_f16(p + 2 * lane)
            p += 16
            for _ in range(8):
                put(p + 4 * lane, d * w.to_f32(w.load_s8(p + 128 + lane)), out)
                p, out = p + 136, out + 128

    return kernel


FORMAT = Format(
    "IQ4_XS", 23, 256, 136, _dequantize, Packed(256, Codes("nibbles", KVALUES), 8, tile, pack, expand, head=16)
)
