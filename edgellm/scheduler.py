"""Who runs in the next step, and with how many tokens.

Knows slots and lengths; neither numbers nor text. There is no prefill mode: a sequence has pending tokens, one of them
or many, and a step takes some. Next hop: `batch.py` makes arrays of the decision.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from .cache.kv import KVCache
from .errors import ResourceError
from .sequence import Sequence, SequenceState


class Work(NamedTuple):
    """`num_tokens` pending tokens of a sequence, to be run in one step."""

    sequence: Sequence
    num_tokens: int


class Scheduler:
    """A queue of waiting sequences and the running ones, first come first served.

    Where the cache's memory holds fewer tokens than the running sequences come to have, the youngest gives way: it waits
    again, at the front, and goes on later with what is left of it in the cache. The oldest always has room.

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
        for sequence in list(self._running):
            if sequence.state is not SequenceState.RUNNING:
                break  # it gave way to an older one just now, and so did all after it
            count = sequence.num_pending
            if count > 1:
                count = min(count, budget)
                budget -= count
            if count and self._make_room(sequence, sequence.num_cached + count):
                work.append(Work(sequence, count))
        return work

    def remove(self, sequence: Sequence, keep: bool = True) -> None:
        """Forget a sequence and free its slot; harmless if it is not here. keep: what it computed may be used again."""
        if sequence in self._running:
            self._running.remove(sequence)
            if keep:
                self._keep(sequence)
            self._cache.close(sequence.slot)
        elif sequence in self._waiting:
            self._waiting.remove(sequence)

    def _admit(self) -> None:
        for sequence in [x for x in self._waiting if x.may_start]:
            if not self._cache.num_free_slots:
                return
            if self._is_being_read(sequence):
                continue  # in a few steps it takes the prompt as it lies
            if self._running and not self._cache.has_room(len(sequence.token_ids) + 1):
                return
            # Every row of logits is wanted: then every token must be computed.
            sequence.start(*self._cache.open(() if sequence.keep_logits else sequence.token_ids))
            self._waiting.remove(sequence)
            self._running.append(sequence)

    def _is_being_read(self, sequence: Sequence) -> bool:
        """True if the whole prompt of a new sequence is that of one whose prompt is on its way into the cache."""
        if sequence.num_output or sequence.keep_logits:
            return False
        reading = (x for x in self._running if x.num_cached < x.num_prompt and not x.keep_logits)
        return any(x.num_prompt == sequence.num_prompt and x.prompt_ids == sequence.token_ids for x in reading)

    def _make_room(self, sequence: Sequence, num_tokens: int) -> bool:
        """Give a sequence places, if need be those of younger ones. -> False if it had to give way itself."""
        while True:
            try:
                self._cache.reserve(sequence.slot, num_tokens)
                return True
            except ResourceError:
                if len(self._running) == 1:
                    raise
            youngest = self._running.pop()
            self._keep(youngest)
            self._cache.close(youngest.slot)
            youngest.pause()
            self._waiting.appendleft(youngest)
            if youngest is sequence:
                return False

    def _keep(self, sequence: Sequence) -> None:
        self._cache.keep(sequence.slot, sequence.token_ids[: sequence.num_cached])
