"""MXFP4: 32 values in 17 bytes, value = 2**(e - 128) * KVALUES[q] with q in 0..15.

e u8, qs u8[16]: the low nibbles are values 0..15, the high ones 16..31. KVALUES are twice the E2M1 numbers, which keeps
them whole; their half is in the scale, which is subnormal for e < 2. No e is infinite or not a number.
Source: ggml-common.h, block_mxfp4 and kvalues_mxfp4; ggml-impl.h, ggml_e8m0_to_fp32_half.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .base import Bytes, Codes, Floats, Format, Kernel, Packed, split
from .nibbles import expander, look_up, packer
from .one_scale import unsigned_tile

KVALUES = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)


def _dequantize(groups: Bytes) -> Floats:
    e, qs = split(groups, 1, 16)
    d: Floats = np.ldexp(np.float32(1), e.astype(np.int32) - 128)
    return d * look_up(KVALUES, qs)


# Packed: 4 x 32 bytes (low nibbles are steps 0-3, high ones 4-7), e u8[8]. Codes mean KVALUES[q] + 16 minus 16.
tile = unsigned_tile(4, lambda w: w.half_powers)


def pack(w: Any) -> Kernel:
    put = packer(w)

    def kernel(src, row_bytes, rows, dst, groups):
        for r in range(8):
            p, o = src + min(r, rows - 1) * row_bytes, dst
            for _ in range(groups):
                put(p + 1, o + 4 * r)
                w.store_u8(o + 128 + r, w.load_u8(p))
                p, o = p + 17, o + 136

    return kernel


def expand(w: Any) -> Kernel:
    put = expander(w, KVALUES)

    def kernel(p, lane, out, groups):
        for _ in range(groups):
            put(p + 4 * lane, w.load_half_power(p + 128 + lane), out)
            p, out = p + 136, out + 128

    return kernel


_CODES = Codes("nibbles", tuple(v + 16 for v in KVALUES))
FORMAT = Format("MXFP4", 39, 32, 17, _dequantize, Packed(32, _CODES, 8, tile, pack, expand))
