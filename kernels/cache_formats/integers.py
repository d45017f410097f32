"""Formats of integers with scales, multiplied two by two: the layout that they share.

K tile: per stripe of 16 tokens and group of dims: codes [pairs of dims][16 tokens][2 dims], then the 16 tokens' scales.
V tile: per group of dims the 64 tokens' scales, then per stripe of 16 dims codes [32 pairs of tokens][16 dims][2 tokens].
A group is 32 dims (the last may be fewer) or the whole head; V's dims are padded with zeros to a multiple of 16. A stripe is
what one register tile of the kernels reads straight through.

Codes of 4 bits are two to a byte, both of one token, so that tokens can be written at the same time: in K the low ones are
pair 2 j and the high ones pair 2 j + 1; in V the low ones are dim d and the high ones dim d + 8 of 16.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .base import TOKENS, Bytes, CacheFormat, Floats, Tiles
from .rotation import rotate

STRIPE = 16  # tokens of K, dims of V
MAX_HEAD_DIM = 576  # a head as floats has to fit into a page of the stack
Codes = NDArray[np.int16]
Quantise = Callable[[Floats], tuple[Codes, Any]]
"""f32[dims of a group] -> the codes, and the scale as it is stored."""


@dataclass(frozen=True, slots=True)
class Layout:
    """bits of a code: 16, 8 or 4. group: dims of a scale, 0 for the whole head. scale: its type."""

    bits: int
    group: int
    scale: type

    def groups(self, head_dim: int) -> Iterator[tuple[int, int]]:
        """First dim and dims of each group."""
        step = self.group or head_dim
        for first in range(0, head_dim, step):
            yield first, min(step, head_dim - first)

    def scale_bytes(self, count: int) -> int:
        return count * int(np.dtype(self.scale).itemsize)

    def code_bytes(self, count: int) -> int:
        return count * self.bits // 8

    def k_tile_bytes(self, head_dim: int) -> int:
        count = len(list(self.groups(head_dim)))
        return self.code_bytes(TOKENS * head_dim) + self.scale_bytes(TOKENS) * count

    def v_tile_bytes(self, head_dim: int) -> int:
        count = len(list(self.groups(head_dim)))
        return self.code_bytes(TOKENS * padded(head_dim)) + self.scale_bytes(TOKENS) * count

    # ---- where a token's codes and scale lie ----
    def k_places(self, tile: Bytes, slot: int, head_dim: int) -> Iterator[tuple[int, int, NDArray[Any], NDArray[Any]]]:
        """Of each group: first dim, dims, its codes as a view, its scale as a view of one."""
        at = slot // STRIPE * (len(tile) * STRIPE // TOKENS)
        for first, dims in self.groups(head_dim):
            end = at + self.code_bytes(STRIPE * dims)
            codes = (
                tile[at:end].view(np.int16 if self.bits == 16 else np.uint8).reshape(-1, STRIPE, 2)[:, slot % STRIPE]
            )
            at = end + self.scale_bytes(STRIPE)
            yield first, dims, codes, tile[end:at].view(self.scale)[slot % STRIPE : slot % STRIPE + 1]

    def v_places(self, tile: Bytes, slot: int, head_dim: int) -> Iterator[tuple[int, int, NDArray[Any], NDArray[Any]]]:
        at = 0
        for first, dims in self.groups(head_dim):
            begin = at + self.scale_bytes(TOKENS)
            scale: NDArray[Any] = tile[at:begin].view(self.scale)[slot : slot + 1]
            at = begin + self.code_bytes(TOKENS * padded(dims))
            codes = tile[begin:at].view(np.int16 if self.bits == 16 else np.uint8)
            yield (
                first,
                dims,
                codes.reshape(padded(dims) // STRIPE, TOKENS // 2, -1, 2)[:, slot // 2, :, slot % 2],
                scale,
            )

    # ---- codes of one token's group as they lie ----
    def put(self, codes: Codes, width: int) -> NDArray[Any]:
        """i16[dims] -> what is stored; width: dims from a byte's low code to its high one."""
        if self.bits == 16:
            return codes
        if self.bits == 8:
            return codes.astype(np.int8).view(np.uint8)
        pairs = codes.astype(np.uint8).reshape(-1, 2, width) & np.uint8(15)
        stored: NDArray[Any] = (pairs[:, 0] | pairs[:, 1] << np.uint8(4)).reshape(-1)
        return stored

    def take(self, stored: NDArray[Any], width: int) -> Codes:
        """The way back."""
        if self.bits == 16:
            return stored
        if self.bits == 8:
            return stored.view(np.int8).astype(np.int16)
        both = stored.reshape(-1, 1, width) >> np.array([[[0]], [[4]]], np.uint8).reshape(1, 2, 1) & np.uint8(15)
        codes: Codes = (both.astype(np.int16).reshape(-1) ^ np.int16(8)) - np.int16(8)
        return codes


def make(
    name: str,
    layout: Layout,
    largest: np.float32,
    quantise_k: Quantise,
    quantise_v: Quantise,
    turns: tuple[int, int] = (0, 0),
) -> CacheFormat:
    """The format of a layout, of values up to `largest`; turns: in blocks of how many dims keys and values are
    kept rotated, 0 if not."""

    def tiles(tile_bytes: Any, places: Any, quantise: Quantise, width: int, whole: Any, turns: int) -> Tiles:
        def write(tile: Bytes, slot: int, x: Floats) -> None:
            x = np.clip(x, -largest, largest)
            x = np.clip(rotate(x, turns), -largest, largest) if turns else x
            for first, dims, codes, scale in places(tile, slot, len(x)):
                some = np.zeros(whole(dims), np.int16)
                some[:dims], scale[:] = quantise(x[first : first + dims])
                codes[:] = layout.put(some, width).reshape(codes.shape)

        def read(tile: Bytes, head_dim: int) -> Floats:
            out = np.empty((TOKENS, head_dim), np.float32)
            for slot in range(TOKENS):
                for first, dims, codes, scale in places(tile, slot, head_dim):
                    some = layout.take(np.ascontiguousarray(codes).reshape(-1), width)[:dims]
                    out[slot, first : first + dims] = some.astype(np.float32) * scale.astype(np.float32)
                out[slot] = rotate(out[slot], turns) if turns else out[slot]
            return out

        return Tiles(tile_bytes, write, read)

    k = tiles(layout.k_tile_bytes, layout.k_places, quantise_k, 2, lambda dims: dims, turns[0])
    v = tiles(layout.v_tile_bytes, layout.v_places, quantise_v, 8, padded, turns[1])
    return CacheFormat(name, k, v, query_bytes, MAX_HEAD_DIM, turns[1])


def query_bytes(head_dim: int) -> int:
    """A ready query: int16[head_dim], its scale f32, padded to whole lines."""
    return -(-(2 * head_dim + 4) // 64) * 64


def padded(head_dim: int) -> int:
    """Dims of a V tile's token."""
    return -(-head_dim // STRIPE) * STRIPE
