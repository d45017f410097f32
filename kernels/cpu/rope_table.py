"""Cosines and sines per position, made 64 positions at a time when a sequence first gets there."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .. import rope as rope_math
from ..ops import Rope
from .memory import aligned

_STEP = 64


class RopeTable:
    """values: f32[positions, 2, dim]: per position the cosines, then the sines with the sign that the partner gets.

    Always computed in the same steps, so that an entry does not depend on who asked first.
    """

    def __init__(self, rope: Rope, factors: NDArray[np.float32] | None, max_positions: int) -> None:
        self._rope, self._factors, self._known = rope, factors, 0
        rows = -(-max_positions // _STEP) * _STEP
        self.values = aligned(rows * rope.dim * 8).view(np.float32).reshape(rows, 2, rope.dim)

    def reach(self, positions: int) -> None:
        """Make entries for positions 0..positions-1."""
        half = self._rope.dim // 2
        if self._rope.pairs == "halves":
            first, second = slice(0, half), slice(half, 2 * half)
        else:
            first, second = slice(0, None, 2), slice(1, None, 2)
        while self._known < positions:
            rows = slice(self._known, self._known + _STEP)
            at = np.arange(rows.start, rows.stop, dtype=np.int64)
            cos, sin = rope_math.cos_sin(self._rope, at, self._factors)
            self.values[rows, 0, first] = self.values[rows, 0, second] = cos
            self.values[rows, 1, first], self.values[rows, 1, second] = -sin, sin
            self._known += _STEP
