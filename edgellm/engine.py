"""Sequences in, tokens out: `Engine.step` runs every sequence in flight by one share of work.

Knows ids only, never text, and changes no number: what a sequence gets does not depend on who else is here.
`Engine` is for one thread; `SharedEngine` lets many threads wait on one. Next hops: `scheduler.py`, `batch.py`,
`runner.py`, `sampling.py`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from .batch import make_batch, split_logits
from .cache.kv import KVCache
from .config import DEFAULT_MAX_CONTEXT, EngineConfig
from .errors import ContextError, EdgeLLMError, OptionError
from .runner import Backend, Runner
from .sampling import is_greedy, sample
from .scheduler import Scheduler, Work
from .sequence import Sequence

Result = TypeVar("Result")


def default_max_context(trained: int | None) -> int:
    """Return the context when the user names none: min(4096, trained length); 4096 if the file says 0 or nothing."""
    return min(DEFAULT_MAX_CONTEXT, trained) if trained is not None and trained > 0 else DEFAULT_MAX_CONTEXT


class Engine:
    """Runs any number of sequences, up to `config.max_sequences` at once; the others queue.

    backend: runs batches. cache: made for the same layers, with config's max_sequences and prefill_chunk.
    eog_ids: ids that end a sequence. The engine closes backend and cache.
    reach: tokens that a token can see at most, where a window was chosen; None if nothing is dropped.
    max_context: tokens a sequence may hold; None for no end, which is where a window was chosen.
    """

    def __init__(
        self,
        backend: Backend | Runner,
        cache: KVCache,
        config: EngineConfig,
        eog_ids: Collection[int] = (),
        reach: int | None = None,
    ) -> None:
        self.runner = backend if isinstance(backend, Runner) else Runner(backend, cache)
        self.config = config
        self.max_context = cache.max_context if reach is None else None
        self.reach = reach
        self.vocab_size = self.runner.vocab_size
        self.eog_ids = frozenset(eog_ids)
        self._eog_list = sorted(i for i in self.eog_ids if 0 <= i < self.vocab_size)
        self._cache = cache
        self._scheduler = Scheduler(cache, config.prefill_chunk)
        self._is_closed = False

    @property
    def has_work(self) -> bool:
        """True while a sequence runs or waits."""
        return self._scheduler.has_work

    def check(self, sequence: Sequence) -> None:
        """Raise what `add` would: ContextError if the prompt leaves no room, OptionError if empty or out of range."""
        self._require_open()
        size = sequence.num_prompt
        if size == 0:
            raise OptionError("the prompt is empty and the model has no token to begin with; give at least one token")
        room = 0 if sequence.keep_logits else 1
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

    def num_dropped(self, num_tokens: int) -> int:
        """How many of a sequence's `num_tokens` tokens were out of sight when its last one was chosen."""
        return 0 if self.reach is None else max(0, num_tokens - 1 - self.reach)

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence, or refuse it before any work is done."""
        self.check(sequence)
        self._scheduler.add(sequence)

    def step(self) -> list[tuple[Sequence, int]]:
        """Run every sequence in flight once and return the new ids, each with its sequence."""
        self._require_open()
        works = self._scheduler.schedule()
        if not works:
            return []
        logits = self.runner.forward(make_batch(works, self._cache.tables))
        new = [(work.sequence, self._take(work, rows)) for work, rows in split_logits(works, logits)]
        return [(sequence, token_id) for sequence, token_id in new if token_id is not None]

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
        self.runner.close()

    def _take(self, work: Work, rows: NDArray[np.float32]) -> int | None:
        """Note a share of work as done; if it ends in a logit row, choose the next id."""
        sequence = work.sequence
        sequence.advance(work.num_tokens)
        if sequence.keep_logits:
            sequence.collect(rows)
            if sequence.num_pending == 0:
                self._end(sequence, "length")
            return None
        if len(rows) == 0:
            return None
        if sequence.params.ignore_eos:  # not chosen at all: a model that went on after its own end would talk to itself
            rows[0, self._eog_list] = -np.inf
        try:
            token_id = sample(rows[0], sequence.params, None if is_greedy(sequence.params) else sequence.rng)
        except EdgeLLMError as error:  # of this sequence alone: the others of the step go on
            self._end(sequence, "error", error)
            return None
        reason = sequence.take(token_id, self.eog_ids, self.max_context)
        if reason is not None:
            self._end(sequence, reason)
        elif sequence.num_cached == sequence.num_prompt:  # others may begin alike while this one still answers
            self._cache.keep(sequence.slot, sequence.prompt_ids)
        return token_id

    def _end(self, sequence: Sequence, reason: str, error: Exception | None = None) -> None:
        self._scheduler.remove(sequence, keep=error is None)
        sequence.finish(reason, error)

    def _require_open(self) -> None:
        if self._is_closed:
            raise EdgeLLMError("this model is closed; load it again")


class SharedEngine:
    """One Engine for many threads: whoever waits for a token steps it, for everyone.

    A change that comes while a step runs (also from a garbage collector, in any thread) is done right after that step,
    by the thread that steps. No lock is held while a step runs or between steps.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._turn = threading.Condition(threading.RLock())
        self._busy_thread: int | None = None
        self._changes: list[Callable[[], None]] = []

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence. Raises like Engine.add, at once."""
        self.engine.check(sequence)
        self._change(lambda: self._add(sequence))

    def cancel(self, sequence: Sequence, reason: str = "cancelled") -> None:
        """End a sequence; its slot is free before the next step."""
        if not sequence.is_finished:
            self._change(lambda: self.engine.cancel(sequence, reason))

    def wait(self, sequence: Sequence, num_seen: int) -> None:
        """Return once `sequence` has more than `num_seen` generated ids or has ended, stepping if nobody else does."""
        while not self._has_news(sequence, num_seen):
            self._step_for(sequence, num_seen)

    def call(self, function: Callable[[], Result]) -> Result:
        """Return what `function` returns, called between two steps. Raises what it raises."""
        results: list[Result] = []
        errors: list[BaseException] = []

        def change() -> None:
            try:
                results.append(function())
            except BaseException as error:  # for the thread that asked, not for the one that steps
                errors.append(error)

        self._change(change)
        with self._turn:
            while not results and not errors:
                self._turn.wait()
        if errors:
            raise errors[0]
        return results[0]

    def close(self) -> None:
        """Close the engine, after the step that runs if there is one. Sequences in flight end as cancelled."""
        self._change(self.engine.close)
        with self._turn:
            while self._busy_thread not in (None, threading.get_ident()):
                self._turn.wait()

    def _add(self, sequence: Sequence) -> None:
        try:
            self.engine.add(sequence)
        except EdgeLLMError as error:  # closed meanwhile: for the thread that waits, not for the one that steps
            sequence.finish("error", error)

    @staticmethod
    def _has_news(sequence: Sequence, num_seen: int) -> bool:
        return sequence.is_finished or sequence.num_output > num_seen

    def _step_for(self, sequence: Sequence, num_seen: int) -> None:
        me = threading.get_ident()
        try:
            with self._turn:
                while self._busy_thread is not None and not self._has_news(sequence, num_seen):
                    self._turn.wait()
                if self._has_news(sequence, num_seen):
                    return
                self._busy_thread = (
                    me  # the only record of who steps, so that Ctrl-C at any point leaves no lock behind
                )
            self.engine.step()
        finally:
            if self._busy_thread == me:
                self._finish_turn()

    def _change(self, change: Callable[[], None]) -> None:
        with self._turn:
            self._changes.append(change)
            if self._busy_thread is None:
                self._busy_thread = threading.get_ident()
                self._finish_turn()

    def _finish_turn(self) -> None:
        with self._turn:
            try:
                while self._changes:
                    self._changes.pop(0)()
            finally:
                self._busy_thread = None
                self._turn.notify_all()
