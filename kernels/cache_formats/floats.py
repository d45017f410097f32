"""Formats of which each value is a number by itself: halves, and floats of 16 and 8 bits.

K tile [2 token halves][head_dim][32 tokens], V tile [head_dim / 32 rounded up][64 tokens][32 dims]: a cached token is a lane
of q.k, a dim one of p.v. What exceeds a format's range becomes its largest number, so that an infinite value cannot reach
other tokens as zero times infinity; what is not a number stays so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..cache_layout import HALF
from .base import TOKENS, Bytes, CacheFormat, Floats, Tiles

Numbers = NDArray[Any]


def make(
    name: str, kind: type, encode: Callable[[Floats], Numbers], decode: Callable[[Numbers], Floats]
) -> CacheFormat:
    """The format whose values are unsigned integers `kind` that encode(f32) makes and decode turns back."""
    size = np.dtype(kind).itemsize

    def keys(tile: Bytes, head_dim: int) -> Numbers:
        """The tile as a view [2, 32 tokens, D]."""
        view: Numbers = tile.view(kind).reshape(2, head_dim, HALF).transpose(0, 2, 1)
        return view

    def values(tile: Bytes, head_dim: int) -> Numbers:
        """The tile as a view [64 tokens, chunks, 32]."""
        view: Numbers = tile.view(kind).reshape(padded(head_dim) // HALF, TOKENS, HALF).transpose(1, 0, 2)
        return view

    def write_k(tile: Bytes, slot: int, x: Floats) -> None:
        keys(tile, len(x))[slot // HALF, slot % HALF] = encode(x)

    def write_v(tile: Bytes, slot: int, x: Floats) -> None:
        row = np.zeros(padded(len(x)), np.float32)
        row[: len(x)] = x
        values(tile, len(x))[slot] = encode(row).reshape(-1, HALF)

    def read_k(tile: Bytes, head_dim: int) -> Floats:
        return decode(np.ascontiguousarray(keys(tile, head_dim)).reshape(TOKENS, head_dim))

    def read_v(tile: Bytes, head_dim: int) -> Floats:
        return decode(np.ascontiguousarray(values(tile, head_dim)).reshape(TOKENS, -1)[:, :head_dim])

    k = Tiles(lambda head_dim: TOKENS * head_dim * size, write_k, read_k)
    v = Tiles(lambda head_dim: TOKENS * padded(head_dim) * size, write_v, read_v)
    return CacheFormat(name, k, v, lambda head_dim: 4 * head_dim)


def small_float(name: str, exponent_bits: int, bias: int, finite: int) -> CacheFormat:
    """The 8-bit float of so many exponent bits whose codes 0..finite - 1 are its finite numbers from zero up."""
    bits = 7 - exponent_bits
    codes = np.arange(128)
    exponent, mantissa = codes >> bits, codes & ((1 << bits) - 1)
    normal = (1 + mantissa / (1 << bits)) * 2.0 ** (exponent - bias)
    numbers = np.where(exponent == 0, mantissa / (1 << bits) * 2.0 ** (1 - bias), normal).astype(np.float32)
    middles = (numbers[: finite - 1] + numbers[1:finite]) / 2
    meaning = np.where(codes < finite, numbers, np.float32(np.nan))
    meaning = np.concatenate([meaning, -meaning]).astype(np.float32)

    def encode(x: Floats) -> Numbers:
        """To the nearest, to the even code of two as near."""
        magnitude = np.abs(x)
        below = np.searchsorted(middles, magnitude)  # the number of middles below the value
        tie = middles[np.minimum(below, finite - 2)] == magnitude
        code = np.where(np.isnan(x), 127, below + (tie & (below % 2 == 1)))
        encoded: Numbers = (code | np.signbit(x).astype(np.int64) << 7).astype(np.uint8)
        return encoded

    return make(name, np.uint8, encode, lambda codes: meaning[codes])


def padded(head_dim: int) -> int:
    """Dims of a V tile's token."""
    return -(-head_dim // HALF) * HALF
