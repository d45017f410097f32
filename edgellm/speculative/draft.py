"""Guesses by a smaller model with the same vocabulary: it decodes ahead, and its cache is rolled back exactly.

Its ids are chosen by the target's own sampler settings and random numbers, so where the two models agree on probabilities
they draw the same ids, and a guess of a drawn text is right nearly as often as the distributions overlap. Knows ids only.
Next hop: `runner.py` runs the model.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from collections.abc import Sequence as ListOf

import numpy as np
from numpy.typing import NDArray

from ..cache.kv import KVCache
from ..errors import ContextError, EdgeLLMError, ResourceError
from ..kernels.ops import Batch
from ..runner import Runner
from ..sequence import Sequence
from .proposer import DRAFT_KIND, NO_GUESS, Guess

LEARN = 0.3
"""Weight of a new measurement of the small model's time."""


class DraftModel:
    """A small model ready to run, for all sequences of an engine.

    runner, cache: it and its own cache, with a slot per sequence. prefill_chunk: most tokens it takes at once.
    eog_ids: ids that end an answer, which are not guessed where the target may not choose them.
    step_s: seconds it takes for a token, 0 before it has been measured.
    """

    def __init__(self, runner: Runner, cache: KVCache, prefill_chunk: int, eog_ids: Collection[int]) -> None:
        self.cache = cache
        self.eog_ids = sorted(eog_ids)
        self.vocab_size = runner.vocab_size
        self.step_s = 0.0
        self._runner = runner
        self._prefill_chunk = prefill_chunk

    def feed(self, slot: int, start: int, token_ids: ListOf[int]) -> NDArray[np.float32]:
        """Compute ids from position `start` on. -> logits f32[V] after the last, valid until the next call.

        Raises ContextError or ResourceError where the cache has no room.
        """
        logits = np.empty(0, np.float32)
        for first in range(0, len(token_ids), self._prefill_chunk):
            part = list(token_ids[first : first + self._prefill_chunk])
            position, began_s = start + first, time.perf_counter()
            self.cache.reserve(slot, position + len(part))
            states, nothing = self.cache.states, np.zeros(0, np.int32)
            batch = Batch(
                token_ids=np.array(part, np.int32),
                positions=np.arange(position, position + len(part), dtype=np.int64),
                sequences=np.full(len(part), slot, np.int32),
                block_tables=self.cache.tables,
                logit_rows=np.array([len(part) - 1], np.int32),
                state_reads=nothing if states is None else states.reads,
                state_writes=nothing if states is None else states.plan(slot, position, len(part)),
            )
            logits = self._runner.forward(batch)[0]
            if len(part) == 1:
                self._note(time.perf_counter() - began_s)
        return logits

    def close(self) -> None:
        """Stop its threads and free its memory."""
        self._runner.close()

    def _note(self, seconds: float) -> None:
        self.step_s += (LEARN if self.step_s else 1.0) * (min(seconds, 2 * self.step_s or seconds) - self.step_s)


class DraftProposer:
    """Guesses for one sequence by a DraftModel. Where its cache has no room left, it guesses nothing."""

    def __init__(self, model: DraftModel, sequence: Sequence) -> None:
        self._model = model
        self._sampler = sequence.chooser.make_twin()
        self._num_prompt = sequence.num_prompt
        self._forbidden = model.eog_ids if sequence.params.ignore_eos else []
        self._slot: int | None = None
        self._cached: list[int] = []

    @property
    def step_s(self) -> float:
        """Seconds a guessed id costs."""
        return self._model.step_s

    def propose(self, token_ids: ListOf[int], max_tokens: int) -> Guess:
        """See Proposer."""
        if max_tokens < 1:
            return NO_GUESS
        text, guess = list(token_ids), list[int]()
        try:
            logits = self._catch_up(text)
            while True:
                guess.append(self._choose(logits, text))
                if len(guess) == max_tokens:
                    break
                text.append(guess[-1])
                logits = self._model.feed(self._open(), len(self._cached), guess[-1:])
                self._cached.append(guess[-1])
        except EdgeLLMError:  # no room, or no numbers: the target goes on without guesses
            pass
        return Guess(guess, DRAFT_KIND)

    def _choose(self, logits: NDArray[np.float32], text: list[int]) -> int:
        logits[self._forbidden] = -np.inf
        return self._sampler.choose(logits, text, self._num_prompt)

    def close(self) -> None:
        """Give the slot back; harmless when repeated."""
        if self._slot is not None:
            self._model.cache.close(self._slot)
            self._slot = None

    def _catch_up(self, text: list[int]) -> NDArray[np.float32]:
        """Make the cache hold the text, what it holds beyond it or instead of it taken back. -> logits after it."""
        slot = self._open()
        common = 0
        limit = min(len(self._cached), len(text) - 1)
        while common < limit and self._cached[common] == text[common]:
            common += 1
        if common < len(self._cached):
            try:
                common = self._model.cache.rewind(slot, common)
            except ContextError:
                common = self._model.cache.rewind(slot, 0)
            del self._cached[common:]
            self._sampler.take_back(common, 0)  # it has seen what was guessed
        logits = self._model.feed(slot, common, text[common:])
        self._cached += text[common:]
        return logits

    def _open(self) -> int:
        if self._slot is None:
            if not self._model.cache.num_free_slots:
                raise ResourceError("the draft model's cache has no free slot")
            self._slot, _ = self._model.cache.open(())
        return self._slot
