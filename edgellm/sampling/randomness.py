"""Random numbers by place: what is drawn at a position of an answer depends on the seed and that position alone.

So ids that are forced, taken back or guessed change nothing of what follows. Philox (Salmon et al. 2011) is a function of a
key and a counter, which is just that. Knows no distribution.
"""

from __future__ import annotations

from numpy.random import Philox

_BLOCK = 32
"""Positions whose numbers are made at once: making a generator costs 30 us, as much as a whole filter."""


class Randomness:
    """The random numbers of one seed."""

    def __init__(self, seed: int) -> None:
        self.seed, self._block, self._numbers = seed, -1, [0]

    def uniforms(self, position: int) -> tuple[float, float]:
        """Return two numbers from 0 to 1, 1 excluded, for a position of an answer: one to choose by, one for chances."""
        block, at = divmod(position, _BLOCK)
        if block != self._block:
            raw = Philox(key=self.seed, counter=[block * _BLOCK, 0, 0, 0]).random_raw(4 * _BLOCK)
            self._block, self._numbers = block, raw.tolist()
        first, second = self._numbers[4 * at : 4 * at + 2]
        return (first >> 11) * 2.0**-53, (second >> 11) * 2.0**-53
