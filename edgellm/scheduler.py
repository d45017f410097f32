"""Who runs in the next step, and with how many tokens.

Knows slots and lengths; neither numbers nor text. There is no prefill mode: a sequence has pending tokens, one of them
or many, and a step takes some. Next hop: `batch.py` makes arrays of the decision.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from .cache.kv import KVCache
from .sequence import Sequence


class Work(NamedTuple):
    """`num_tokens` pending tokens of a sequence, to be run in one step."""

    sequence: Sequence
    num_tokens: int


class Scheduler:
    """A queue of waiting sequences and the running ones, first come first served.

    A step holds at most `prefill_chunk` prompt tokens in all, and one token of every sequence that has just one
    pending: never more than prefill_chunk + max_sequences tokens.
    """

    def __init__(self, cache: KVCache, prefill_chunk: int) -> None:
        self._cache = cache
        self._prefill_chunk = prefill_chunk
        self._waiting: deque[Sequence] = deque()
        self._running: list[Sequence] = []

    @property
    def sequences(self) -> list[Sequence]:
        """All that run or wait, oldest first."""
        return [*self._running, *self._waiting]

    @property
    def has_work(self) -> bool:
        """True while anything runs or waits."""
        return bool(self._running or self._waiting)

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence."""
        self._waiting.append(sequence)

    def schedule(self) -> list[Work]:
        """Admit who fits, then choose each sequence's share and make room for it in the cache."""
        self._admit()
        budget = self._prefill_chunk
        work = []
        for sequence in self._running:
            count = sequence.num_pending
            if count > 1:
                count = min(count, budget)
                budget -= count
            if count:
                self._cache.reserve(sequence.slot, sequence.num_cached + count)
                work.append(Work(sequence, count))
        return work

    def remove(self, sequence: Sequence) -> None:
        """Forget a sequence and free its slot; harmless if it is not here."""
        if sequence in self._running:
            self._running.remove(sequence)
            self._cache.close(sequence.slot)
        elif sequence in self._waiting:
            self._waiting.remove(sequence)

    def _admit(self) -> None:
        while self._waiting and self._cache.num_free_slots:
            sequence = self._waiting.popleft()
            sequence.start(self._cache.open())
            self._running.append(sequence)
