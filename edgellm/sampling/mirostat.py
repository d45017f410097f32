"""Mirostat 2: keep the surprise of each chosen id near a target, in place of filters (Basu et al. 2021, as in llama.cpp).

Knows candidates; what it has learned can be taken back. Next hop: `candidates.py`.
"""

from __future__ import annotations

import math

from .candidates import Candidates


class Mirostat:
    """tau: the surprise wanted, in bits. eta: how fast to learn. What is more surprising than `limit` is left out."""

    def __init__(self, tau: float, eta: float) -> None:
        self._tau, self._eta = tau, eta
        self._limits = [2.0 * tau]  # before each generated id
        self._next = self._limits[0]

    @property
    def limit(self) -> float:
        """The largest surprise, in bits, that is let pass now."""
        return self._limits[-1]

    def filter(self, candidates: Candidates) -> None:
        """Leave ids whose surprise is at most the limit."""
        depth = math.log(candidates.total()) - self.limit * math.log(2.0)
        candidates.keep_depth(min(depth, 0.0))

    def observe(self, probability: float) -> None:
        """Learn from the probability that the chosen id had among those left."""
        surprise = -math.log2(probability)
        self._next = self.limit - self._eta * (surprise - self._tau)

    def accept(self) -> None:
        """An id was taken: the chosen one, or one that was forced, from which nothing is learned."""
        self._limits.append(self._next)

    def take_back(self, num_tokens: int) -> None:
        """Undo the last `num_tokens` calls of `accept`."""
        if num_tokens:
            del self._limits[-num_tokens:]
        self._next = self.limit
