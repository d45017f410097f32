"""The Hadamard rotation of a head: orthogonal, its own inverse, and only sums and differences.

A head is rotated in blocks of `most` values, or of the largest power of two that divides its size if that is less. The butterfly
takes neighbours first, then pairs of pairs; all sums are float32 in that order, and one factor at the end makes lengths stay.
"""

from __future__ import annotations

import numpy as np

from .base import Floats


def block(head_dim: int, most: int) -> int:
    """Values that are rotated together; `most` is a power of two."""
    return min(head_dim & -head_dim, most)


def rotate(x: Floats, most: int) -> Floats:
    """f32[D] -> f32[D]; twice gives x again, but for rounding."""
    half, size = 1, block(len(x), most)
    while half < size:
        low, high = np.moveaxis(x.reshape(-1, 2, half), 1, 0)
        x = np.stack([low + high, low - high], axis=1).reshape(-1)
        half *= 2
    out: Floats = x * (np.float32(1) / np.sqrt(np.float32(size)))
    return out
