"""What formats without groups share: one value per row and column, multiplied with activations that stay float32."""

from __future__ import annotations

from typing import Any

from .base import Kernel


def tile(w: Any) -> Kernel:
    """Packed: per column eight values, one per row. Even and odd columns are summed in order, each in a sum of their own;
    the result is even + odd. `ahead` is how far away the next eight rows are where a tile has sixteen.
    """

    def kernel(p, x, columns, y, stride, flags, ahead):
        acc, x_stride = w.zero(), (columns + 31) // 32 * 128
        for _ in range(columns // 2):
            w.fetch(p + ahead)
            acc = w.pair(acc, p, ahead, x, x_stride)
            p, x = p + w.PAIR, x + 8
        if columns % 2 == 1:
            acc = w.single(acc, p, ahead, x, x_stride)
        w.store(y, stride, acc, flags)

    return kernel
