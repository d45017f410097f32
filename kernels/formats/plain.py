"""What formats without groups share: one value per row and column, multiplied with activations that stay float32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .base import Kernel


def make_tile(get_load: Callable[[Any], Any], unit_bytes: int) -> Callable[[Any], Kernel]:
    """The tile of a format whose packed column is eight values in `unit_bytes`, one per row.

    get_load(words) is the word that reads them as float32. Columns are added in order.
    """

    def tile(w: Any) -> Kernel:
        load = get_load(w)

        def kernel(p, x, columns, y, stride, flags, ahead):
            acc, x_stride = w.zero(), (columns + 31) // 32 * 128
            for _ in range(columns):
                acc = w.fma_f32(acc, load(p), x, x_stride)
                p, x = p + unit_bytes, x + 4
            w.store(y, stride, acc, flags)

        return kernel

    return tile


def pack_halves(w: Any) -> Kernel:
    """Interleave eight rows of two-byte values."""

    def kernel(src, row_bytes, rows, dst, columns):
        for r in range(8):
            p, o = src + min(r, rows - 1) * row_bytes, dst + 2 * r
            for i in range(columns):
                w.store_u16(o + 16 * i, w.load_u16(p + 2 * i))

    return kernel
