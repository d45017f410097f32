"""What formats of one scale d per group of 32 share: a weight is d * q, or d * (q - 2**bits) with unsigned codes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .base import Kernel


def unsigned_tile(bits: int, get_scale: Callable[[Any], Any] = lambda w: w.half) -> Callable[[Any], Kernel]:
    """The tile of codes q that mean q - 2**bits; get_scale(words) is the word that reads d behind the codes.

    The integer sum starts from minus 2**bits times the activations. Per group: acc = fma(integer sum, d * scale, acc).
    """

    def tile(w: Any) -> Kernel:
        scale = get_scale(w)

        def kernel(p, x, groups, y, stride, flags, ahead):
            acc = w.zero()
            for _ in range(groups):
                w.fetch(p + ahead)
                a = w.mac(w.start(x, bits), p, x)
                acc = w.fma_dx(acc, w.total(a), scale(p + w.CODES), x)
                p, x = p + w.STRIDE, x + w.GROUP
            w.store(y, stride, acc, flags)

        return kernel

    return tile


def signed_tile(w: Any) -> Kernel:
    """The tile of int8 weights with d f16[8] behind them. Per group: acc = fma(integer sum, d * scale, acc)."""

    def kernel(p, x, groups, y, stride, flags, ahead):
        acc = w.zero()
        for _ in range(groups):
            w.fetch(p + ahead)
            acc = w.fma_dx(acc, w.dot_signed(p, x), w.half(p + w.CODES), x)
            p, x = p + w.STRIDE, x + w.GROUP
        w.store(y, stride, acc, flags)

    return kernel
