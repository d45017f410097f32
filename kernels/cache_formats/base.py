"""What a format of cached keys and values is: its sizes, and what the bytes of a tile mean.

A tile holds BLOCK_SIZE tokens of one kv head; K and V tiles are laid out apart, so that attention reads both straight
through (see floats.py and integers.py). Knows no single format, no array of the cache, no kernel: those that the CPU
uses are in ../cpu/cache_kernels.py. NumPy here is the meaning that tests hold kernels to.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...errors import UnsupportedError
from ..cache_layout import BLOCK_SIZE

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]

TOKENS = BLOCK_SIZE
MULTIPLE = 8  # head sizes that a kernel's steps divide


@dataclass(frozen=True, slots=True)
class Tiles:
    """K tiles or V tiles. tile_bytes(head_dim); write(tile u8[tile_bytes], slot, x f32[D]); read(tile, D) -> f32[64, D]."""

    tile_bytes: Callable[[int], int]
    write: Callable[[Bytes, int, Floats], None]
    read: Callable[[Bytes, int], Floats]


@dataclass(frozen=True, slots=True)
class CacheFormat:
    """A format of keys or of values; both sides of every format can be had.

    name: as options spell it. k, v: its tiles. query_bytes(head_dim): of a query made ready for its keys, in scratch.
    max_head_dim: the largest head that it can keep. rotated: in blocks of at most how many dims values are kept
    rotated (rotation.py), so that sums of them have to be rotated back; 0 if not.
    """

    name: str
    k: Tiles
    v: Tiles
    query_bytes: Callable[[int], int]
    max_head_dim: int = 1 << 16
    rotated: int = 0

    def k_tile_bytes(self, head_dim: int) -> int:
        """Bytes of BLOCK_SIZE tokens' keys of one head, a multiple of 64."""
        return self.k.tile_bytes(head_dim)

    def v_tile_bytes(self, head_dim: int) -> int:
        """Bytes of BLOCK_SIZE tokens' values of one head, a multiple of 64; dims may be padded to a multiple of 32."""
        return self.v.tile_bytes(head_dim)

    def check(self, head_dim: int) -> None:
        """Raise UnsupportedError for a head size that it cannot keep."""
        if head_dim <= 0 or head_dim % MULTIPLE:
            raise UnsupportedError(
                f"a cache of the format {self.name} keeps heads of multiples of {MULTIPLE} values, and this model's have "
                f"{head_dim}; no cache format can keep them"
            )
        if head_dim > self.max_head_dim:
            raise UnsupportedError(
                f"a cache of the format {self.name} keeps heads of at most {self.max_head_dim} values, and this model's have "
                f"{head_dim}; choose f16"
            )
