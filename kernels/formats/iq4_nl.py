"""IQ4_NL: 32 values in 18 bytes, value = d * KVALUES[q] with q in 0..15.

d f16, qs u8[16]: the low nibbles are values 0..15, the high ones 16..31.
Source: ggml-common.h, block_iq4_nl and kvalues_iq4nl.
"""

from __future__ import annotations

from typing import Any

from .base import Bytes, Codes, Floats, Format, Kernel, Packed, f16, split
from .nibbles import expander, look_up, packer
from .one_scale import signed_tile

KVALUES = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)


def _dequantize(groups: Bytes) -> Floats:
    d, qs = split(groups, 2, 16)
    return f16(d) * look_up(KVALUES, qs)


# Packed: 4 x 32 bytes (low nibbles are steps 0-3, high ones 4-7), d f16[8]. The integer sum is of KVALUES[q].
tile = signed_tile


def pack(w: Any) -> Kernel:
    put = packer(w)

    def kernel(src, row_bytes, rows, dst, groups):
        for r in range(8):
            p, o = src + min(r, rows - 1) * row_bytes, dst
            for _ in range(groups):
                put(p + 2, o + 4 * r)
                w.store_u16(o + 128 + 2 * r, w.load_u16(p))
                p, o = p + 18, o + 144

    return kernel


def expand(w: Any) -> Kernel:
    put = expander(w, KVALUES)

    def kernel(p, lane, out, groups):
        for _ in range(groups):
            put(p + 4 * lane, w.load_f16(p + 128 + 2 * lane), out)
            p, out = p + 144, out + 128

    return kernel


FORMAT = Format("IQ4_NL", 20, 32, 18, _dequantize, Packed(32, Codes("nibbles", KVALUES), 16, tile, pack, expand))
