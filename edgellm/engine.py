"""Sequences in, tokens out: `Engine.step` runs every sequence in flight by one share of work.

Knows ids only, never text, and changes no number: what a sequence gets does not depend on who else is here.
`Engine` is for one thread; `shared_engine.py` lets many threads wait on one. Next hops: `scheduler.py`, `batch.py`,
`runner.py`, `choosing.py`.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .batch import make_batch, split_hidden, split_logits
from .cache.kv import KVCache
from .choosing import Choice
from .config import DEFAULT_MAX_CONTEXT, EngineConfig
from .errors import ContextError, EdgeLLMError, OptionError, UnsupportedError
from .kernels.ops import Aborted
from .runner import Backend, Runner
from .scheduler import Scheduler, Work
from .sequence import Sequence
from .speculative import Speculator

ENCODERS_ONLY = "this model makes vectors of texts and writes none: use LLM.embed or LLM.rerank (edgellm embed)"


def default_max_context(trained: int | None) -> int:
    """Return the context when the user names none: min(4096, trained length); 4096 if the file says 0 or nothing."""
    return min(DEFAULT_MAX_CONTEXT, trained) if trained is not None and trained > 0 else DEFAULT_MAX_CONTEXT


class Occupancy(NamedTuple):
    """running: sequences that hold a place in the cache. waiting: those that wait for one.

    blocks_in_use: cache blocks that running ones hold. blocks_kept: those that wait to be used again. blocks_free: the others.
    """

    running: int
    waiting: int
    blocks_in_use: int
    blocks_kept: int
    blocks_free: int


class Engine:
    """Runs any number of sequences, up to `config.max_sequences` at once; the others queue.

    backend: runs batches. cache: made for the same layers, with config's max_sequences and prefill_chunk.
    eog_ids: ids that end a sequence. The engine closes backend and cache.
    speculator: guesses ids that a step checks; None for none.
    reach: tokens that a token can see at most, where a window was chosen; None if nothing is dropped.
    is_encoder: the backend makes hidden states and no logits, of texts that are computed in one piece.
    max_context: tokens a sequence may hold; None for no end, which is where a window was chosen.
    """

    def __init__(
        self,
        backend: Backend | Runner,
        cache: KVCache,
        config: EngineConfig,
        eog_ids: Collection[int] = (),
        reach: int | None = None,
        speculator: Speculator | None = None,
        is_encoder: bool = False,
    ) -> None:
        self.runner = backend if isinstance(backend, Runner) else Runner(backend, cache)
        self.config = config
        self.max_context = cache.max_context if reach is None else None
        self.reach = reach
        self.is_encoder = is_encoder
        self.vocab_size = self.runner.vocab_size
        self.eog_ids = frozenset(eog_ids)
        self._eog_list = sorted(i for i in self.eog_ids if 0 <= i < self.vocab_size)
        self._cache = cache
        self._scheduler = Scheduler(cache, config.prefill_chunk, in_one_piece=is_encoder)
        self._begin_guessing(speculator)
        self._plain_step_s = 0.0
        self._works: list[Work] = []  # what the step that is on computes
        self._is_closed = self._is_ending = False

    @property
    def has_work(self) -> bool:
        """True while a sequence runs or waits."""
        return self._scheduler.has_work

    @property
    def can_run(self) -> bool:
        """True while a step would do something; False until a sequence comes or a reader catches up."""
        return not self._is_closed and self._scheduler.can_run

    @property
    def occupancy(self) -> Occupancy:
        """What the sequences in flight hold; from any thread, where it may be a step old."""
        in_use, kept, free = self._cache.num_blocks
        return Occupancy(self._scheduler.num_running, self._scheduler.num_waiting, in_use, kept, free)

    def use(self, speculator: Speculator | None) -> None:
        """Guess by this from now on, and close what guessed before."""
        if self.speculator is not None:
            self.speculator.close()
        self._begin_guessing(speculator)

    def check(self, sequence: Sequence) -> None:
        """Raise what `add` would: ContextError if the prompt leaves no room, OptionError if empty or out of range.

        UnsupportedError where logits are wanted of an encoder.
        """
        self._require_open()
        if self.is_encoder:
            self._check_for_encoder(sequence)
        size = sequence.num_prompt
        if size == 0:
            raise OptionError("the prompt is empty and the model has no token to begin with; give at least one token")
        room = int(sequence.generates)
        if self.max_context is not None and size + room > self.max_context:
            raise ContextError(
                f"the prompt has {size} tokens and max_context is {self.max_context}"
                + (" (one must stay free for the answer)" if room else "")
                + "; shorten the prompt, raise max_context (--max-context) or let the oldest tokens go (--on-full window)"
            )
        low, high = min(sequence.token_ids), max(sequence.token_ids)
        if low < 0 or high >= self.vocab_size:
            bad = low if low < 0 else high
            raise OptionError(f"token id {bad} is out of range; this model's ids are 0 to {self.vocab_size - 1}")

    def require_writer(self) -> None:
        """Raise UnsupportedError if the model has no logits to write with."""
        if self.is_encoder:
            raise UnsupportedError(ENCODERS_ONLY)

    def _check_for_encoder(self, sequence: Sequence) -> None:
        if sequence.keep_hidden is None:
            self.require_writer()
        size, most = sequence.num_prompt, self._cache.max_context
        if size > most:
            raise ContextError(
                f"the text has {size} tokens and this model reads at most {most} at once; shorten it or cut it in pieces"
            )

    def num_dropped(self, num_tokens: int) -> int:
        """How many of a sequence's `num_tokens` tokens were out of sight when its last one was chosen."""
        return 0 if self.reach is None else max(0, num_tokens - 1 - self.reach)

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence, or refuse it before any work is done."""
        self.check(sequence)
        if self.runner.vocabulary is not None:
            sequence.chooser.use(self.runner.vocabulary)
        self._scheduler.add(sequence)

    def step(self) -> list[tuple[Sequence, int]]:
        """Run every sequence in flight once and return the new ids, each with its sequence; nothing if it is interrupted.

        Mostly one a sequence; a constraint may force several at once, and ids that are taken back are not among them.
        """
        self._require_open()
        works = self._works = self._scheduler.schedule()
        try:
            if not works or self._is_for_nothing(works):
                return []
            batch = make_batch(works, self._cache.tables, self._cache.states)
            started_s = time.perf_counter()
            logits = self.runner.forward(batch)
        except Aborted:
            return []  # no sequence has moved: what the cache got is written again
        finally:
            self._works = []
        if self.speculator is not None and all(work.is_decode for work in works):
            self._note_step(works, time.perf_counter() - started_s)
        if len(batch.hidden_rows):
            for work, rows in split_hidden(works, self.runner.hidden):
                work.sequence.collect_hidden(rows, work.num_tokens)
        return [
            (work.sequence, token_id)
            for work, rows in split_logits(works, logits)
            for token_id in self._take(work, rows)
        ]

    def interrupt(self, sequence: Sequence | None = None) -> None:
        """End the running step early, undone, if it is for nothing once `sequence` (None: all) has ended; from any thread.

        What others have in that step is computed again: for a prompt that pays, for a token beside theirs it does not.
        """
        # First said, then looked: a step that begins meanwhile sees it itself.
        if sequence is None:
            self._is_ending = True
        else:
            sequence.is_unwanted = True
        if self._is_for_nothing(self._works):
            self.runner.abort()

    def fail(self, error: BaseException) -> None:
        """End those that run with an error that a step raised."""
        for sequence in self._scheduler.running or self._scheduler.sequences:
            self._end(sequence, "error", error)

    def cancel(self, sequence: Sequence, reason: str = "cancelled") -> None:
        """End a sequence and free its slot at once; harmless if it has ended."""
        self._end(sequence, reason)

    def close(self) -> None:
        """End everything, stop the backend and free the cache; harmless when repeated. Open sequences get an error."""
        if self._is_closed:
            return
        self._is_closed = True
        for sequence in self._scheduler.sequences:
            self._end(sequence, "error", EdgeLLMError("the model was closed before this answer was complete"))
        if self.speculator is not None:
            self.speculator.close()
        self.runner.close()

    def _begin_guessing(self, speculator: Speculator | None) -> None:
        self.speculator = speculator
        self._scheduler.guess = None if speculator is None else speculator.guess
        if speculator is not None and self._cache.states is not None:
            speculator.feeds_again = not self._cache.states.saves_guesses

    def _is_for_nothing(self, works: list[Work]) -> bool:
        if self._is_ending:
            return bool(works)
        return any(work.sequence.is_unwanted and (work.num_tokens > 1 or len(works) == 1) for work in works)

    def _take(self, work: Work, rows: NDArray[np.float32]) -> list[int]:
        """Note a share of work as done; if it ends in a logit row, choose the next id, and those that it forces."""
        sequence = work.sequence
        sequence.advance(work.num_tokens)
        if not sequence.generates:
            if sequence.keep_logits:
                sequence.collect(rows)
            if sequence.num_pending == 0:
                self._end(sequence, "length")
            return []
        if len(rows) == 0:
            self._cache.keep_states(sequence.slot, sequence.token_ids[: sequence.num_cached], sequence.domain)
            return []
        if sequence.num_cached == sequence.num_prompt:  # others may begin alike while this one still answers
            self._cache.keep(sequence.slot, sequence.prompt_ids, sequence.domain)
        try:
            return self._choose(work, rows)
        except Exception as error:  # of this sequence alone: the others of the step go on
            self._end(sequence, "error", error)
            return []

    def _choose(self, work: Work, rows: NDArray[np.float32]) -> list[int]:
        """Choose the next id from the first row, and from the rows of the guesses as long as they are what was chosen."""
        sequence, taken = work.sequence, list[int]()
        # Not chosen at all with ignore_eos: a model that went on after its own end would talk to itself.
        forbidden = self._eog_list if sequence.params.ignore_eos else ()
        while True:
            choice = sequence.chooser.choose(rows[len(taken)], sequence.token_ids, sequence.num_prompt, forbidden)
            new = self._append(sequence, choice)
            guessed = work.draft[len(taken) : len(taken) + len(new)]
            num_right = next((i for i, (a, b) in enumerate(zip(guessed, new, strict=False)) if a != b), len(guessed))
            taken += new
            if sequence.is_finished:
                break
            sequence.advance(num_right)  # the step has computed them
            if not new or num_right < len(new):
                break
        if work.draft and not sequence.is_finished:
            sequence.num_cached = self._cache.rewind(sequence.slot, sequence.num_cached)
        if self.speculator is not None:
            self._note_result(work, taken)
        return taken

    def _note_step(self, works: list[Work], seconds: float) -> None:
        """Learn what a step costs, and note what it would have cost each sequence to come as far by plain steps."""
        assert self.speculator is not None
        rows = sum(work.num_rows for work in works)
        self.speculator.note_step(rows, seconds)
        self._plain_step_s = self.speculator.times.of(len(works))
        for work in works:
            work.sequence.step_s += seconds

    def _note_result(self, work: Work, taken: list[int]) -> None:
        assert self.speculator is not None
        self.speculator.note_result(work.sequence, taken)
        work.sequence.plain_step_s += len(taken) * self._plain_step_s
        work.sequence.num_drafted += len(work.draft)
        work.sequence.num_accepted += max(0, min(len(taken) - 1, len(work.draft)))

    def _append(self, sequence: Sequence, choice: Choice) -> list[int]:
        """Take a chosen id and all that it forces, until the sequence ends. -> them, unless they are taken back."""
        start, choices = len(sequence.token_ids), [choice]
        while choices:
            reason = sequence.take(choices.pop(0), self.eog_ids, self.max_context)
            back = sequence.chooser.accept(sequence.token_ids[-1])
            if back:
                self._take_back(sequence, back)
                break
            if reason is None and sequence.chooser.is_complete:
                reason = "stop"
            if reason is not None:
                self._end(sequence, reason)
                break
            choices = choices or [Choice(token_id) for token_id in sequence.chooser.forced()]
        sequence.publish()
        return sequence.token_ids[start:]

    def _take_back(self, sequence: Sequence, num_tokens: int) -> None:
        """Undo the last ids; what the cache cannot go back to, because a window or a state has moved on, is computed again."""
        sequence.take_back(num_tokens)
        try:
            sequence.num_cached = self._cache.rewind(sequence.slot, sequence.num_cached)
        except ContextError:
            sequence.num_cached = self._cache.rewind(sequence.slot, 0)
        if sequence.num_cached == 0:  # the prompt, at least, may lie in the cache
            self._cache.close(sequence.slot)
            sequence.start(*self._cache.open(sequence.token_ids))

    def _end(self, sequence: Sequence, reason: str, error: BaseException | None = None) -> None:
        self._scheduler.remove(sequence, keep=error is None)
        if self.speculator is not None:
            self.speculator.forget(sequence)
        sequence.finish(reason, error)

    def _require_open(self) -> None:
        if self._is_closed:
            raise EdgeLLMError("this model is closed; load it again")
