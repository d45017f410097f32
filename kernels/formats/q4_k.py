"""Q4_K: 256 values in 144 bytes, eight runs of 32; value = d * scale * q - dmin * min with q in 0..15.

d f16, dmin f16, scales u8[12], qs u8[128]. Each 32 bytes of qs are two runs: low nibbles, then high nibbles.
scales holds eight 6-bit scales and eight 6-bit mins: bytes 0..3 are scales 0..3 and bytes 4..7 mins 0..3 in their low
six bits; bytes 8..11 are the low nibbles of scales 4..7 (low half) and mins 4..7 (high half), whose upper two bits are
the top bits of bytes 0..3 and 4..7. Source: ggml-common.h, block_q4_K; ggml-quants.c, get_scale_min_k4.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .base import Bytes, Codes, Floats, Format, Kernel, Packed, bits, f16, split


def scales_and_mins(scales: Bytes) -> tuple[Bytes, Bytes]:
    """Unpack u8[n, 12] into the 6-bit scales u8[n, 8] and mins u8[n, 8]."""
    s, m, both = split(scales, 4, 4, 4)
    top_s, top_m = s >> 2 & 0x30, m >> 2 & 0x30
    return np.hstack([s & 0x3F, both & 0x0F | top_s]), np.hstack([m & 0x3F, both >> 4 | top_m])


def _dequantize(groups: Bytes) -> Floats:
    d, dmin, scales, qs = split(groups, 2, 2, 12, 128)
    scale, minimum = scales_and_mins(scales)
    q = bits(qs.reshape(-1, 32), 4).reshape(-1, 8, 32).astype(np.float32)
    step = f16(d) * scale.astype(np.float32)
    offset = f16(dmin) * minimum.astype(np.float32)
    return (step[:, :, None] * q - offset[:, :, None]).reshape(-1, 256)


def tile(w: Any) -> Kernel:
    """Packed, per 256: eight groups of 4 x 32 bytes (low nibbles are steps 0-3, high ones 4-7) and eight (scale, min) byte
    pairs, so that everything a group needs lies in it; then d f16[8], -dmin f16[8].

    Per group: s = fma(scale * integer sum, activation scale, s), u = fma(min, scaled sum, u). Per 256: acc = fma(d, s, acc),
    then acc = fma(-dmin, u, acc).
    """

    def kernel(p, x, supers, y, stride, flags, ahead):
        acc = w.zero()
        for _ in range(supers):
            s, u = w.zero(), w.zero()
            for _ in range(8):
                w.fetch(p + ahead)
                a = w.dot(p, x)
                s = w.fma_x(s, w.scaled(a, w.first_u8(p + w.CODES)), x)
                u = w.fma_m(u, w.second_u8(p + w.CODES), x)
                p, x = p + w.STRIDE, x + w.GROUP
            acc = w.fma_d(w.fma_d(acc, w.half(p), s), w.half(p + 16), u)
            p += w.TAIL
        w.store(y, stride, acc, flags)

    return kernel


def run_packer(w: Any) -> Kernel:
    """A helper of pack kernels, put(qs, g, to): run g's nibbles, of the 128 bytes at `qs`, into the group at a row's lane."""

    def put(qs, g, to):
        run, shift = qs + 32 * (g // 2), 4 * (g % 2)
        for t in range(4):
            low = w.load_u32(run + 4 * t) >> shift & 0x0F0F0F0F
            high = w.load_u32(run + 16 + 4 * t) >> shift & 0x0F0F0F0F
            w.store_u32(to + 32 * t, low | high << 4)

    inlined: Kernel = w.inline(put)
    return inlined


def scale_and_min_packer(w: Any) -> Kernel:
    """A helper of pack kernels: run g's scale and min, from the twelve bytes at `scales`, as two bytes."""

    def put(scales, g, to):
        if g < 4:
            scale, minimum = w.load_u8(scales + g) & 63, w.load_u8(scales + 4 + g) & 63
        else:
            both = w.load_u8(scales + 4 + g)
            scale = both & 15 | w.load_u8(scales + g - 4) >> 6 << 4
            minimum = both >> 4 | w.load_u8(scales + g) >> 6 << 4
        w.store_u8(to, scale)
        w.store_u8(to + 1, minimum)

    inlined: Kernel = w.inline(put)
    return inlined


def pack(w: Any) -> Kernel:
    put_run, put_scale_and_min = run_packer(w), scale_and_min_packer(w)

    def kernel(src, row_bytes, rows, dst, supers):
        for r in range(8):
            p, o = src + min(r, rows - 1) * row_bytes, dst
            for _ in range(supers):
                for g in range(8):
                    put_run(p + 16, g, o + 4 * r)
                    put_scale_and_min(p + 4, g, o + 128 + 2 * r)
                    o += 144
                w.store_u16(o + 2 * r, w.load_u16(p))
                w.store_u16(o + 16 + 2 * r, w.load_u16(p + 2) ^ 0x8000)
                p, o = p + 144, o + 32

    return kernel


def expand(w: Any) -> Kernel:
    def kernel(p, lane, out, supers):
        for _ in range(supers):
            d, minus_dmin = w.load_f16(p + 1152 + 2 * lane), w.load_f16(p + 1168 + 2 * lane)
            for _ in range(8):
                step = d * w.to_f32(w.load_u8(p + 128 + 2 * lane))
                offset = minus_dmin * w.to_f32(w.load_u8(p + 129 + 2 * lane))
                for i in range(16):
                    b = w.load_u8(p + 32 * (i // 4) + 4 * lane + i % 4)
                    w.store_f32(out + 4 * i, step * w.to_f32(b & 15) + offset)
                    w.store_f32(out + 4 * i + 64, step * w.to_f32(b >> 4) + offset)
                p, out = p + 144, out + 128
            p += 32

    return kernel


FORMAT = Format("Q4_K", 12, 256, 144, _dequantize, Packed(256, Codes("nibbles"), 16, tile, pack, expand, tail=32))
