"""IQ1_S: 256 values in 50 bytes, eight runs of 32; value = d * (2 s + 1) * (grid value + delta).

d f16, qs u8[32], qh u16[8]. An index of the grid (eight values of -1, 0 or 1 each) is a byte of qs and three bits of the
run's word of qh, lowest first; the word's next three bits are s, and its top bit says that delta is -1/8 and not 1/8.
Source: ggml-common.h, block_iq1_s, iq1s_grid; ggml-quants.c, dequantize_row_iq1_s.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .base import Bytes, Codes, Floats, Format, Kernel, Packed, f16, split
from .grids import grid, grid_words
from .places import code_at, code_putter


def _dequantize(groups: Bytes) -> Floats:
    d, qs, qh = split(groups, 2, 32, 16)
    words = np.ascontiguousarray(qh).view("<u2")
    high = (words[:, :, None] >> np.array([0, 3, 6, 9], np.uint16) & np.uint16(7)).reshape(-1, 32)
    eighths = (grid("IQ1_S")[qs | high << np.uint16(8)].astype(np.int8) * 8 - 8).reshape(-1, 8, 32)
    eighths += np.where(words >> np.uint16(15), np.int8(-1), np.int8(1))[:, :, None]
    step = f16(d) * np.float32(1 / 8) * (2 * (words >> np.uint16(12) & np.uint16(7)) + 1).astype(np.float32)
    values: Floats = step[:, :, None] * eighths.astype(np.float32)
    return values.reshape(-1, 256)


def tile(w: Any) -> Kernel:
    """Packed, per 256: eight groups of 64 bytes of two-bit codes (cpu/unpack.py), 8 * (2 s + 1) as int8[8], and minus the
    delta of that scale, in eighths, as int8[8]; then d f16[8].

    Integer sums of scale * (8 * grid value + delta) * activation are exact. Per group: s = fma(sum, activation scale, s).
    Per 256: acc = fma(d / 8, s, acc).
    """
    dot, eighth = w.dot_codes((-1, 0, 1, 2), scales=1), w.times(1 / 8)

    def kernel(p, x, supers, y, stride, flags, ahead):
        acc = w.zero()
        for _ in range(supers):
            s = w.zero()
            for _ in range(8):
                w.fetch(p + ahead)
                deltas = w.scaled(w.start(x, 0), w.row_scales(p + w.CODES + 8))
                s = w.fma_x(s, w.add(dot(p, x), deltas), x)
                p, x = p + w.STRIDE, x + w.GROUP
            acc = w.fma_d(acc, eighth(w.half(p)), s)
            p += w.TAIL
        w.store(y, stride, acc, flags)

    return kernel


def pack(w: Any) -> Kernel:
    put, entry = code_putter(w, 2), w.table(grid_words("IQ1_S"), 64)

    def eight(p, high):
        return entry(w.load_u8(p) | (high & 7) << 8)

    codes = w.inline(eight)

    def kernel(src, row_bytes, rows, dst, supers):
        for r in range(8):
            p, o = src + min(r, rows - 1) * row_bytes, dst
            for _ in range(supers):
                for g in range(8):
                    q, h = p + 2 + 4 * g, w.load_u16(p + 34 + 2 * g)
                    put(o + 4 * r, codes(q, h), codes(q + 1, h >> 3), codes(q + 2, h >> 6), codes(q + 3, h >> 9))
                    scale = 2 * (h >> 12 & 7) + 1
                    w.store_u8(o + 64 + r, 8 * scale)
                    w.store_u8(o + 72 + r, scale if h >> 15 else -scale)
                    o += 80
                w.store_u16(o + 2 * r, w.load_u16(p))
                p, o = p + 50, o + 16

    return kernel


def expand(w: Any) -> Kernel:
    code = code_at(w, 2)

    def kernel(p, lane, out, supers):
        for _ in range(supers):
            d = w.load_f16(p + 640 + 2 * lane) * np.float32(1 / 8)
            for _ in range(8):
                scale, minus_delta = w.load_s8(p + 64 + lane), w.load_s8(p + 72 + lane)
                for i in range(32):
                    w.store_f32(out + 4 * i, d * w.to_f32((code(p + 4 * lane, i) - 1) * scale - minus_delta))
                p, out = p + 80, out + 128
            p += 16

    return kernel


FORMAT = Format("IQ1_S", 19, 256, 50, _dequantize, Packed(256, Codes("two_bits"), 16, tile, pack, expand, tail=16))
