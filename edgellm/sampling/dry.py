"""DRY, "don't repeat yourself": penalise ids that would go on with what the text has already said, the longer the more.

By Philipp Emanuel Weidmann (text-generation-webui, 2024), as in llama.cpp. Knows ids, and the bytes of a token for the texts
that end a repetition. Next hop: `history.py` has the ids.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from collections.abc import Sequence as ListOf

import numpy as np
from numpy.typing import NDArray

from ..config import SamplingParams
from .history import History

_MAX_LOG = 88.7  # of a float32
Ints = NDArray[np.int64]


def suffix_matches(ids: Ints) -> Ints:
    """Return i64[n]: how many ids before place j are the last ids of all, one by one; in linear time.

    The Z-algorithm (Gusfield 1997) on the ids from behind. Place 0 has none before it.
    """
    backwards = ids[::-1].tolist()
    n, left, right = len(backwards), 0, 0
    z = [0] * n
    for i in range(1, n):
        k = min(right - i, z[i - left]) if i < right else 0
        while i + k < n and backwards[k] == backwards[i + k]:
            k += 1
        z[i] = k
        if i + k > right:
            left, right = i, i + k
    # What ends right before place j is what begins at n - j from behind.
    return np.array([0, *z[:0:-1]] if n else [], np.int64)


class Breakers:
    """Knows which ids end a repetition: those that complete a text, however it is cut into tokens."""

    def __init__(self, texts: ListOf[str], token_bytes: Callable[[int], bytes] | None) -> None:
        self._texts = [text.encode() for text in texts]
        self._token_bytes = token_bytes
        self._longest = max(map(len, self._texts), default=0)

    def count_since(self, ids: Ints, first: int) -> int | None:
        """Return how many of the last ids stand behind the last breaker that ends in ids[first:], None if none does."""
        if self._token_bytes is None or not self._texts:
            return None
        for place in range(len(ids) - 1, first - 1, -1):
            if self._ends(ids, place):
                return len(ids) - 1 - place
        return None

    def _ends(self, ids: Ints, place: int) -> bool:
        assert self._token_bytes is not None
        piece, before = self._token_bytes(int(ids[place])), b""
        while place > 0 and len(before) < self._longest - 1:
            place -= 1
            before = self._token_bytes(int(ids[place])) + before
        text, start = before + piece, len(before) + 1
        return any(text.find(breaker, max(0, start - len(breaker))) >= 0 for breaker in self._texts)


class Dry:
    """DRY of one sequence. token_bytes: the bytes of an id; without it nothing ends a repetition."""

    def __init__(self, params: SamplingParams, token_bytes: Callable[[int], bytes] | None = None) -> None:
        self._params = params
        self._history = History()
        self._breakers = Breakers(params.dry_breakers, token_bytes)
        self._matches = np.zeros(0, np.int64)
        self._since = 0  # ids behind the last breaker

    @staticmethod
    def is_on(params: SamplingParams) -> bool:
        """True if it changes anything."""
        return params.dry_multiplier > 0.0 and params.dry_last_n != 0

    def apply(self, logits: NDArray[np.float32], token_ids: ListOf[int], scale: float = 1.0) -> None:
        """Change logits f32[V] of what follows token_ids in place; -inf stays. scale: as in `penalise`."""
        self._extend(token_ids)
        params, ids = self._params, self._history.ids
        start = 0 if params.dry_last_n < 0 else max(0, len(ids) - params.dry_last_n)
        if self._since < params.dry_allowed_length:
            return
        places = np.flatnonzero(self._matches[start:] >= params.dry_allowed_length) + start
        lengths = np.minimum(np.minimum(self._matches[places], places - start), self._since)
        order = np.argsort(lengths, kind="stable")  # where an id may go on in two ways, the longer one is written last
        order = order[lengths[order] >= params.dry_allowed_length]
        exponents = lengths[order] - params.dry_allowed_length
        if params.dry_base > 1.0:
            exponents = np.minimum(exponents, int(_MAX_LOG / math.log(params.dry_base)))
        next_ids = ids[places[order]]
        lower = params.dry_multiplier * scale * params.dry_base ** exponents.astype(np.float64)
        values = logits[next_ids].astype(np.float64)
        limit = float(np.finfo(np.float32).max)
        logits[next_ids] = np.where(values > -np.inf, np.maximum(values - lower, -limit), values)

    def take_back(self, num_tokens: int) -> None:
        """Forget all ids but the first `num_tokens`; matches are looked for anew."""
        self._history.take_back(num_tokens)
        self._matches = np.zeros(0, np.int64)

    def _extend(self, token_ids: ListOf[int]) -> None:
        new = self._history.extend(token_ids)
        ids = self._history.ids
        known = len(ids) - len(new)
        if len(self._matches) != known or len(new) > _MOST_STEPS:
            self._matches = suffix_matches(ids)
            self._since = len(ids)
            known = 0
        else:
            for place in range(known, len(ids)):
                longer = np.where(ids[:place] == ids[place], self._matches + 1, 0)
                self._matches = np.concatenate([_ZERO, longer])
            self._since += len(new)
        since = self._breakers.count_since(ids, known)
        self._since = self._since if since is None else since


_MOST_STEPS = 8  # new ids from which looking for matches anew is cheaper than step by step
_ZERO = np.zeros(1, np.int64)
