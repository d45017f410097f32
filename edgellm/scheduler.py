"""Who runs in the next step, and with how many tokens.

Knows slots and lengths; neither numbers nor text. There is no prefill mode: a sequence has pending tokens, one of them
or many, and a step takes some. Next hops: `admission.py` orders those who wait, `pace.py` says how much of a prompt a step may
take beside decoding, `batch.py` makes arrays of the decision.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable
from typing import NamedTuple

from .admission import Waiting
from .cache.kv import KVCache
from .errors import ResourceError
from .pace import Pace
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
        return _is_decode(self.sequence, self.num_tokens)


class Scheduler:
    """A queue of waiting sequences and the running ones: the most urgent first, then as `admission.Waiting` has it.

    Where the cache's memory holds fewer tokens than the running sequences come to have, the least urgent gives way, the
    youngest of them: it waits again, at the front, and goes on later with what is left of it in the cache. The oldest of the
    most urgent always has room. Nobody gives way to one that waits, but for those that are idle:
    a sequence whose reader is far behind does not run, and is the first to give way where another wants its place.

    A step holds at most `prefill_chunk` prompt and guessed tokens in all, and one token of every sequence that has just one
    pending: never more than prefill_chunk + max_sequences tokens. A sequence grows by at most prefill_chunk, so a window
    can always take back a guess.

    guess: says what may follow, None for no guesses. in_one_piece: tokens see those behind them, so a step takes the whole of a
    sequence, of at most prefill_chunk tokens, and nothing it computed is of use to others. pace: how much of prompts a step takes
    while others decode; None: as much as the chunk holds.
    """

    def __init__(
        self,
        cache: KVCache,
        prefill_chunk: int,
        guess: Guess | None = None,
        in_one_piece: bool = False,
        pace: Pace | None = None,
    ) -> None:
        self.guess = guess
        self._pace = pace
        self._in_one_piece = in_one_piece
        self._cache = cache
        self._prefill_chunk = prefill_chunk
        self._waiting = Waiting()
        self._running: list[Sequence] = []

    @property
    def sequences(self) -> list[Sequence]:
        """All that run or wait, the most urgent of each first, then the oldest."""
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
        """Those that hold a place in the cache, the most urgent first, then the oldest."""
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
        self._waiting.add(sequence)

    def schedule(self) -> list[Work]:
        """Admit who fits, then choose each sequence's share and make room for it in the cache."""
        self._admit()
        budget = self._prefill_chunk
        room = budget if self._pace is None or not self._is_decoding() else self._pace.rows  # for prompts
        work: list[Work] = []
        least = {x: _least_rows(x, room) for x in self._running}
        others = sum(least.values())  # rows that the step has beside those of a sequence, guesses of later ones aside
        for sequence in list(self._running):
            others -= least[sequence]
            if sequence.state is not SequenceState.RUNNING or sequence.is_ahead:
                continue  # it gave way to an older one just now, or its reader is far behind
            count = sequence.num_pending
            if self._in_one_piece and count > budget:
                continue
            if count > 1:
                count = min(count, budget if _is_decode(sequence, count) else min(budget, room))
                budget -= count
                room -= 0 if _is_decode(sequence, sequence.num_pending) else count
            # Where a state went back to before the last tokens, those are fed again, with guesses behind them as always.
            is_all = count == sequence.num_pending and (count == 1 or self._cache.states is not None)
            may_guess = is_all and count <= MAX_AGAIN
            draft = self._draft(sequence, budget, others) if may_guess else ()
            budget -= len(draft)
            if count and (draft or self._make_room(sequence, sequence.num_cached + count)):
                work.append(Work(sequence, count, draft))
                others += work[-1].num_rows
        return work

    def note_step(self, work: list[Work], seconds: float) -> None:
        """The step that `schedule` chose took so long."""
        if self._pace is not None:
            prompts = sum(x.num_tokens for x in work if not x.is_decode)
            self._pace.note(prompts, any(x.is_decode and x.sequence.num_output for x in work), seconds)

    def _is_decoding(self) -> bool:
        """True if somebody waits for his next token."""
        return any(x.num_output and _is_decode(x, x.num_pending) and not x.is_ahead for x in self._running)

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
        if not self._cache.num_free_slots and not any(x.is_ahead for x in self._running):
            return  # as in most steps: however many wait, it costs nothing
        for sequence in self._waiting.in_turn(lambda x: x.may_start and not x.is_ahead):
            if self._is_being_read(sequence):
                continue  # in a few steps it takes the prompt as it lies
            while not self._has_place(sequence):
                idle = [x for x in self._running if x.is_ahead]
                if not idle:
                    return
                self._give_way(idle[-1])
            sequence.start(*self._open(sequence))
            self._waiting.admit(sequence)
            insort(self._running, sequence, key=lambda x: x.priority)

    def _has_place(self, sequence: Sequence) -> bool:
        if not self._cache.num_free_slots:
            return False
        return not self._running or self._cache.has_room(len(sequence.token_ids) + 1)

    def _is_being_read(self, sequence: Sequence) -> bool:
        """True if the whole prompt of a new sequence is that of one whose prompt is on its way into the cache."""
        if sequence.num_output or sequence.wants_all_rows or self._in_one_piece or not self._cache.reuses:
            return False
        reading = (x for x in self._running if x.num_cached < x.num_prompt and not x.wants_all_rows)
        return any(_prompt_is_that_of(sequence, x) for x in reading)

    def _make_room(self, sequence: Sequence, num_tokens: int) -> bool:
        """Give a sequence places, if need be those of idle, less urgent or younger ones. -> False if it gave way itself."""
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
        self._waiting.put_back(sequence)

    def _keep(self, sequence: Sequence) -> None:
        if not self._in_one_piece:
            self._cache.keep(sequence.slot, sequence.token_ids[: sequence.num_cached], sequence.domain)

    def _open(self, sequence: Sequence) -> tuple[int, int]:
        is_new = self._in_one_piece or sequence.wants_all_rows
        return self._cache.open(() if is_new else sequence.token_ids, sequence.domain)


def _is_decode(sequence: Sequence, num_tokens: int) -> bool:
    return num_tokens == 1 or (sequence.num_output > 0 and num_tokens <= MAX_AGAIN)


def _least_rows(sequence: Sequence, room: int) -> int:
    """What a step will take of a sequence at least, if there is a place for it. room: for prompts."""
    if sequence.is_ahead:
        return 0
    return sequence.num_pending if _is_decode(sequence, sequence.num_pending) else min(sequence.num_pending, room)


def _prompt_is_that_of(new: Sequence, old: Sequence) -> bool:
    return old.num_prompt == new.num_prompt and old.adapters == new.adapters and old.prompt_ids == new.token_ids
