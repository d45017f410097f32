"""Walks along an answer: what may come next, what must, whether it is complete. Any step can be taken back.

Knows ids and their bytes. The parser is llguidance's: for what it does see its docs, "Fast-forward tokens" among them.
Next hops: `bitmask.py`, `runs.py`, `vocabulary.py`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..errors import EdgeLLMError, OptionError
from .bitmask import LogitMask, make_bits
from .grammar import Grammar
from .runs import Run
from .vocabulary import Vocabulary


class GrammarConstraint:
    """Keeps one answer to a grammar: the `Constraint` of `choosing`.

    Raises OptionError where no token can go on, or where the grammar becomes too complex at some place.
    """

    def __init__(self, vocabulary: Vocabulary, grammar: Grammar) -> None:
        self._vocabulary = vocabulary
        self._grammar = grammar
        self._matcher = vocabulary.make_matcher(grammar)
        self._bits = make_bits(vocabulary.size)
        self._mask = LogitMask()
        self._runs = [Run()]  # after each id
        self._num_ends = 0  # of the ids accepted last, how many end an answer: the parser has not seen them

    def mask(self, logits: NDArray[np.float32]) -> None:
        """Set to -inf in logits f32[V] what may not come next; end-of-generation ids stay where the text may end."""
        self._matcher.unsafe_compute_mask_ptr(self._bits.ctypes.data, self._bits.nbytes)
        self._check()
        if not self._bits.any():
            raise OptionError(f"{self._grammar.name} leads nowhere: no token of this model can follow {self._where()}")
        if self._grammar.bounds_runs:
            self._bound_runs()
        self._mask.apply(self._bits, self._vocabulary.size, logits)

    def accept(self, token_id: int) -> None:
        """Go on by an id that `mask` left or `forced` named; an end-of-generation id changes nothing."""
        if token_id in self._vocabulary.eog_ids:
            self._num_ends += 1
            return
        if not self._matcher.consume_token(token_id):
            self._check()
            raise OptionError(f"token {token_id} cannot follow {self._where()} in {self._grammar.name}")
        self._runs.append(self._runs[-1].after(self._vocabulary.token_bytes(token_id)))

    def forced(self) -> list[int]:
        """Ids that must come next, one after another, whatever the logits; they are not accepted yet."""
        if self._num_ends or self._matcher.is_stopped():
            return []
        return self._matcher.compute_ff_tokens()

    def take_back(self, num_tokens: int) -> None:
        """Undo the last `num_tokens` calls of `accept`."""
        num_ends = min(self._num_ends, num_tokens)
        self._num_ends -= num_ends
        if count := num_tokens - num_ends:
            if not self._matcher.rollback(count):
                self._check()
            del self._runs[-count:]

    @property
    def is_complete(self) -> bool:
        """True once nothing but the end may follow."""
        return self._matcher.is_stopped() and not self._matcher.is_error()

    def _bound_runs(self) -> None:
        """Forbid to go on with a run that is long enough, unless the schema wants just that."""
        if letters := self._runs[-1].too_long:
            others = self._bits & ~self._vocabulary.starting_with(letters)
            if others.any():
                self._bits[:] = others

    def _check(self) -> None:
        if self._matcher.is_error():
            raise self._fault()

    def _fault(self) -> EdgeLLMError:
        reason = self._matcher.stop_reason()
        text = " ".join(self._matcher.get_error().split("<state>")[0].split())
        return OptionError(f"{self._grammar.name} cannot be followed beyond {self._where()}: {text[:200]} ({reason})")

    def _where(self) -> str:
        count = len(self._runs) - 1
        return f"the first {count} tokens" if count else "the beginning"
