"""Formats of cached keys and values: one file each says what a tile's bytes mean, in NumPy. `get` finds one by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..cache_layout import BLOCK_SIZE, HALF


@dataclass(frozen=True, slots=True)
class CacheFormat:
    """A format's name and the bytes of the tiles (BLOCK_SIZE tokens of one kv head) of a head size."""

    name: str
    k_tile_bytes: Callable[[int], int]
    v_tile_bytes: Callable[[int], int]


def _plain(name: str, element: int) -> CacheFormat:
    """Floats in the tiles that cache_layout.py describes, of `element` bytes each."""
    return CacheFormat(
        name,
        lambda dim: BLOCK_SIZE * dim * element,
        lambda dim: BLOCK_SIZE * (-(-dim // HALF) * HALF) * element,
    )


FORMATS = {f.name: f for f in (_plain("f16", 2),)}


def get(name: str) -> CacheFormat:
    """The format of that name."""
    return FORMATS[name]
