"""NVFP4: 64 values in 36 bytes, four runs of 16; value = d * v, v one of 0, 1, 2, 3, 4, 6, 8, 12 with a sign.

d u8[4], qs u8[32]. d is half an unsigned float of four exponent bits (bias 7) and three of mantissa; 0x7f means zero, and
the top bit counts for nothing otherwise. Each 8 bytes of qs are a run: low nibbles, then high ones; a nibble's top bit is
the sign. Source: ggml-common.h, block_nvfp4; ggml-impl.h, ggml_ue4m3_to_fp32; NVIDIA's NVFP4 (E2M1 under E4M3 scales).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .base import Bytes, Codes, Floats, Format, Kernel, Packed, bits, split
from .coded import unsigned_table
from .places import ONES, code_at, code_putter

VALUES = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)


def _scale(d: Bytes) -> Floats:
    """u8 -> f32. The seven bits lie in float16 as they are, where the exponent's bias is eight more."""
    seven = np.where(d == 0x7F, np.uint8(0), d & np.uint8(0x7F)).astype(np.uint16)
    half: Floats = (seven << np.uint16(7)).view(np.float16).astype(np.float32)
    scale: Floats = half * np.float32(128)
    return scale


def _dequantize(groups: Bytes) -> Floats:
    d, qs = split(groups, 4, 32)
    v = np.array(VALUES, np.float32)[bits(qs.reshape(-1, 8), 4).reshape(-1, 4, 16)]
    return (_scale(d)[:, :, None] * v).reshape(-1, 64)


def tile(w: Any) -> Kernel:
    """Packed, per group of 32: 4 x 32 bytes (low nibbles are steps 0-3, high ones 4-7), d f16[8] of the first 16 columns,
    d f16[8] of the others. For each half: acc = fma(integer sum, d * scale, acc).
    """
    low, high = w.dot_codes(VALUES, halves=(0,)), w.dot_codes(VALUES, halves=(1,))

    def kernel(p, x, units, y, stride, flags, ahead):
        acc = w.zero()
        for _ in range(units):
            for _ in range(2):
                w.fetch(p + ahead)
                acc = w.fma_dx(acc, low(p, x), w.half(p + w.CODES), x)
                acc = w.fma_dx(acc, high(p, x), w.half(p + w.CODES + 16), x)
                p, x = p + w.STRIDE, x + w.GROUP
            p += w.TAIL
        w.store(y, stride, acc, flags)

    return kernel


def pack(w: Any) -> Kernel:
    """Scales become float16, which holds them all: 0, or 2**-10 to 240."""
    put, half = (
        code_putter(w, 4),
        w.table(_scale(np.arange(256, dtype=np.uint8)).astype("<f2").view("<u2").tolist(), 16),
    )

    def kernel(src, row_bytes, rows, dst, units):
        for r in range(8):
            p, o = src + min(r, rows - 1) * row_bytes, dst
            for _ in range(units):
                for g in range(2):
                    u, v, mask = w.load_i64(p + 4 + 16 * g), w.load_i64(p + 12 + 16 * g), 15 * ONES
                    put(o + 4 * r, u & mask, u >> 4 & mask, v & mask, v >> 4 & mask)
                    w.store_u16(o + 128 + 2 * r, half(w.load_u8(p + 2 * g)))
                    w.store_u16(o + 144 + 2 * r, half(w.load_u8(p + 2 * g + 1)))
                    o += 160
                p += 36

    return kernel


def expand(w: Any) -> Kernel:
    code, value = code_at(w, 4), w.table(VALUES)

    def kernel(p, lane, out, units):
        for _ in range(2 * units):
            for i in range(32):
                d = w.load_f16(p + 128 + 16 * (i // 16) + 2 * lane)
                w.store_f32(out + 4 * i, d * w.to_f32(value(code(p + 4 * lane, i))))
            p, out = p + 160, out + 128

    return kernel


_CODES = Codes("nibbles", unsigned_table(VALUES))
FORMAT = Format("NVFP4", 40, 64, 36, _dequantize, Packed(64, _CODES, 32, tile, pack, expand))
