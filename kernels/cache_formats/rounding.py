"""How numbers become integers, in the order of the kernels: sums in 32 virtual lanes and a fixed tree, float32 throughout."""

from __future__ import annotations

import numpy as np

from .base import Floats
from .integers import Codes

SMALLEST_SCALE = np.float32(1e-38)  # below, its inverse is infinite, and all codes are 0


def length(x: Floats) -> np.float32:
    """The Euclidean length of f32[n]."""
    lanes = np.zeros(32, np.float32)
    for first in range(0, len(x), 32):
        some = x[first : first + 32]
        # A product of two float32 is exact in float64, so that this rounds as one fused multiply-add but for rare ties.
        lanes[: len(some)] = (some.astype(np.float64) * some + lanes[: len(some)]).astype(np.float32)
    while len(lanes) > 1:
        lanes = lanes[: len(lanes) // 2] + lanes[len(lanes) // 2 :]
    root: np.float32 = np.sqrt(lanes[0])
    return root


def largest(x: Floats) -> np.float32:
    """The largest magnitude; what is not a number is the largest."""
    most: np.float32 = np.abs(x).max()
    return most


def to_codes(x: Floats, scale: np.float32, low: int, high: int) -> tuple[Codes, np.float32]:
    """x / scale, rounded to nearest even, within low..high; what is not a number becomes `high`, and its scale shows it."""
    with np.errstate(invalid="ignore", over="ignore"):
        inverse = np.float32(1) / scale if abs(scale) > SMALLEST_SCALE else np.float32(0)
        scaled = x * inverse
    scaled = np.where(scaled < high, scaled, np.float32(high))
    scaled = np.where(scaled > low, scaled, np.float32(low))
    return np.rint(scaled).astype(np.int16), scale


def ready(x: Floats) -> tuple[Codes, np.float32]:
    """A query f32[D] of the formats with groups: its largest magnitude becomes 32767."""
    return to_codes(x, largest(x) / np.float32(32767), -32767, 32767)
