"""The Hadamard rotation of a head: orthogonal, its own inverse, and only sums and differences.

A head is rotated in blocks of the largest power of two that divides its size. The butterfly takes neighbours first, then
pairs of pairs; all sums are float32 in that order, and one factor at the end makes lengths stay.
"""

from __future__ import annotations

import numpy as np

from .base import Floats


def block(head_dim: int) -> int:
    """Values that are rotated together: the largest power of two that divides the head size."""
    return head_dim & -head_dim


def factor(head_dim: int) -> np.float32:
    """What the sums are multiplied with."""
    by: np.float32 = np.float32(1) / np.sqrt(np.float32(block(head_dim)))
    return by


def rotate(x: Floats) -> Floats:
    """f32[D] -> f32[D]; twice gives x again, but for rounding."""
    half, size = 1, block(len(x))
    while half < size:
        low, high = np.moveaxis(x.reshape(-1, 2, half), 1, 0)
        x = np.stack([low + high, low - high], axis=1).reshape(-1)
        half *= 2
    out: Floats = x * factor(len(x))
    return out
