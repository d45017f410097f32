"""TQ1_0: 256 values in 54 bytes, value = d * (q - 1) with q in 0..2; five values share a byte.

qs u8[48], qh u8[4], d f16. A byte is a fraction of 256 in base three: q of place k is (byte * 3**k mod 256) * 3 // 256.
The first 32 bytes are values 0..159, the places one after the other; the next 16 bytes are values 160..239; the four
bytes of qh, of four places each, are values 240..255. Source: ggml-common.h, block_tq1_0; ggml-quants.c.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .base import Bytes, Floats, Format, Kernel, f16, split
from .coded import Coded
from .places import code_putter

CODED = Coded((-1, 0, 1, 2), bits=2)
_POWERS = np.array([1, 3, 9, 27, 81], np.uint8)[:, None]


def _places(field: Bytes, count: int) -> Bytes:
    """u8[n, m] -> the first `count` places of each byte, u8[n, count * m]."""
    fractions = (field[:, None, :] * _POWERS[:count]).astype(np.uint16)
    places: Bytes = (fractions * np.uint16(3) >> np.uint16(8)).astype(np.uint8).reshape(len(field), -1)
    return places


def _dequantize(groups: Bytes) -> Floats:
    first, second, qh, d = split(groups, 32, 16, 4, 2)
    codes = np.hstack([_places(first, 5), _places(second, 5), _places(qh, 4)])
    return CODED.meaning(f16(d), np.ones((1, 1)), codes)


def _place_reader(w: Any) -> Any:
    """A helper of pack kernels: one place of each of a word's eight bytes, as two words of four numbers of 16 bits."""
    lanes = 0x00FF00FF00FF00FF

    def place(v, power):
        even, odd = (v & lanes) * power & lanes, (v >> 8 & lanes) * power & lanes
        return even * 3 >> 8 & lanes | (odd * 3 >> 8 & lanes) << 8

    return w.inline(place)


def pack(w: Any) -> Kernel:
    put, place, power_of = code_putter(w, 2), _place_reader(w), w.table([1, 3, 9, 27, 81])

    def kernel(src, row_bytes, rows, dst, supers):
        for r in range(8):
            p, o = src + min(r, rows - 1) * row_bytes, dst + 4 * r
            for _ in range(supers):
                for g in range(5):
                    u, v, power = w.load_i64(p), w.load_i64(p + 8), power_of(g)
                    s, t = w.load_i64(p + 16), w.load_i64(p + 24)
                    put(o + 64 * g, place(u, power), place(v, power), place(s, power), place(t, power))
                u, v = w.load_i64(p + 32), w.load_i64(p + 40)
                put(o + 320, place(u, 1), place(v, 1), place(u, 3), place(v, 3))
                put(o + 384, place(u, 9), place(v, 9), place(u, 27), place(v, 27))
                h = w.load_u32(p + 48)
                low, high = place(h, 1) | place(h, 3) << 32, place(h, 9) | place(h, 27) << 32
                put(o + 448, place(u, 81), place(v, 81), low, high)
                w.store_u16(o + 512 - 2 * r, w.load_u16(p + 52))
                p, o = p + 54, o + 528

    return kernel


FORMAT = Format("TQ1_0", 34, 256, 54, _dequantize, CODED.packed(pack))
