"""Who runs in the next step, and with how many tokens.

Knows slots and lengths; neither numbers nor text. There is no prefill mode: a sequence has pending tokens, one of them
or many, and a step takes some. Next hop: `batch.py` makes arrays of the decision.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from .cache.kv import KVCache
from .errors import ResourceError
from .sequence import Sequence, SequenceState

Guess = Callable[[Sequence, int, int], list[int]]
"""(sequence, most ids, rows of others in the step) -> ids that may follow."""


MAX_AGAIN = 8
"""Pending tokens of an answer up to which a step is still one of decoding: guesses may follow, and its time is measured."""


class Work(NamedTuple):
    """`num_tokens` pending tokens of a sequence, to be run in one step, and guesses of what follows them, to be checked."""

    sequence: Sequence
    num_tokens: int
    draft: tuple[int, ...] = ()

    @property
    def num_rows(self) -> int:
        """Tokens that the step computes."""
        return self.num_tokens + len(self.draft)

    @property
    def is_decode(self) -> bool:
        """True if the step takes an answer on, by what it computes of this sequence."""
        return self.num_tokens == 1 or (self.sequence.num_output > 0 and self.num_tokens <= MAX_AGAIN)


class Scheduler:
    """A queue of waiting sequences and the running ones, first come first served.

    Where the cache's memory holds fewer tokens than the running sequences come to have, the youngest gives way: it waits
    again, at the front, and goes on later with what is left of it in the cache. The oldest always has room.
    A sequence whose reader is far behind does not run, and is the first to give way where another wants its place.

    A step holds at most `prefill_chunk` prompt and guessed tokens in all, and one token of every sequence that has just one
    pending: never more than prefill_chunk + max_sequences tokens. A sequence grows by at most prefill_chunk, so a window
    can always take back a guess.

    guess: says what may follow, None for no guesses. in_one_piece: tokens see those behind them, so a step takes the whole of a
    sequence, of at most prefill_chunk tokens, and nothing it computed is of use to others.
    """

    def __init__(
        self, cache: KVCache, prefill_chunk: int, guess: Guess | None = None, in_one_piece: bool = False
    ) -> None:
        self.guess = guess
        self._in_one_piece = in_one_piece
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

    @property
    def can_run(self) -> bool:
        """True if `schedule` would find work; False until a sequence comes or a reader catches up."""
        return any(not s.is_ahead for s in self._running) or any(s.may_start and not s.is_ahead for s in self._waiting)

    @property
    def running(self) -> list[Sequence]:
        """Those that hold a place in the cache, oldest first."""
        return list(self._running)

    @property
    def num_running(self) -> int:
        """How many hold a place in the cache; from any thread."""
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        """How many wait for one; from any thread."""
        return len(self._waiting)

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence."""
        self._waiting.append(sequence)

    def schedule(self) -> list[Work]:
        """Admit who fits, then choose each sequence's share and make room for it in the cache."""
        self._admit()
        budget = self._prefill_chunk
        work: list[Work] = []
        for sequence in list(self._running):
            if sequence.state is not SequenceState.RUNNING or sequence.is_ahead:
                continue  # it gave way to an older one just now, or its reader is far behind
            count = sequence.num_pending
            if self._in_one_piece and count > budget:
                continue
            if count > 1:
                count = min(count, budget)
                budget -= count
            # Where a state went back to before the last tokens, those are fed again, with guesses behind them as always.
            is_all = count == sequence.num_pending and (count == 1 or self._cache.states is not None)
            may_guess = is_all and count <= MAX_AGAIN
            draft = self._draft(sequence, budget, sum(x.num_rows for x in work)) if may_guess else ()
            budget -= len(draft)
            if count and (draft or self._make_room(sequence, sequence.num_cached + count)):
                work.append(Work(sequence, count, draft))
        return work

    def _draft(self, sequence: Sequence, budget: int, other_rows: int) -> tuple[int, ...]:
        """Guess what follows the few pending tokens, within the places that are free: nobody gives way for a guess."""
        if self.guess is None or sequence.num_output == 0 or sequence.keep_logits:
            return ()
        count = sequence.num_pending
        longest = min(budget, self._prefill_chunk - count, self._cache.max_context - len(sequence.token_ids))
        if sequence.params.max_tokens is not None:  # the last token is chosen without a guess
            longest = min(longest, sequence.params.max_tokens - sequence.num_output - 1)
        draft = tuple(self.guess(sequence, longest, other_rows)) if longest > 0 else ()
        if draft:
            try:
                self._cache.reserve(sequence.slot, sequence.num_cached + count + len(draft))
            except ResourceError:
                return ()
        return draft

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
        for sequence in [x for x in self._waiting if x.may_start and not x.is_ahead]:
            if self._is_being_read(sequence):
                continue  # in a few steps it takes the prompt as it lies
            while not self._has_place(sequence):
                idle = [x for x in self._running if x.is_ahead]
                if not idle:
                    return
                self._give_way(idle[-1])
            sequence.start(*self._open(sequence))
            self._waiting.remove(sequence)
            self._running.append(sequence)

    def _has_place(self, sequence: Sequence) -> bool:
        if not self._cache.num_free_slots:
            return False
        return not self._running or self._cache.has_room(len(sequence.token_ids) + 1)

    def _is_being_read(self, sequence: Sequence) -> bool:
        """True if the whole prompt of a new sequence is that of one whose prompt is on its way into the cache."""
        if sequence.num_output or sequence.wants_all_rows or self._in_one_piece:
            return False
        reading = (x for x in self._running if x.num_cached < x.num_prompt and not x.wants_all_rows)
        return any(_prompt_is_that_of(sequence, x) for x in reading)

    def _make_room(self, sequence: Sequence, num_tokens: int) -> bool:
        """Give a sequence places, if need be those of idle or younger ones. -> False if it had to give way itself."""
        while True:
            try:
                self._cache.reserve(sequence.slot, num_tokens)
                return True
            except ResourceError:
                if len(self._running) == 1:
                    raise
            idle = [x for x in self._running if x.is_ahead and x is not sequence]
            victim = idle[-1] if idle else self._running[-1]
            self._give_way(victim)
            if victim is sequence:
                return False

    def _give_way(self, sequence: Sequence) -> None:
        self._running.remove(sequence)
        self._keep(sequence)
        self._cache.close(sequence.slot)
        sequence.pause()
        self._waiting.appendleft(sequence)

    def _keep(self, sequence: Sequence) -> None:
        if not self._in_one_piece:
            self._cache.keep(sequence.slot, sequence.token_ids[: sequence.num_cached], sequence.domain)

    def _open(self, sequence: Sequence) -> tuple[int, int]:
        is_new = self._in_one_piece or sequence.wants_all_rows
        return self._cache.open(() if is_new else sequence.token_ids, sequence.domain)


def _prompt_is_that_of(new: Sequence, old: Sequence) -> bool:
    return old.num_prompt == new.num_prompt and old.adapters == new.adapters and old.prompt_ids == new.token_ids
