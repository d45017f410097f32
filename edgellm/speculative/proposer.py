"""What every source of guesses looks like. Next hops: `ngram.py` guesses from the text itself, `draft.py` asks a small model."""

from __future__ import annotations

from collections.abc import Sequence as ListOf
from typing import NamedTuple, Protocol


class Guess(NamedTuple):
    """Ids that may come next, and for each how sure its source is: ids of one kind have their luck counted together."""

    token_ids: list[int]
    kinds: list[int]


NO_GUESS = Guess([], [])
DRAFT_KIND = 100
"""The kind of all guesses of a draft model."""


class Proposer(Protocol):
    """Guesses what follows one sequence. Wrong guesses cost time, never anything else."""

    @property
    def step_s(self) -> float | None:
        """Seconds that a guessed id costs: None for next to nothing, 0.0 while that is not known."""

    def propose(self, token_ids: ListOf[int], max_tokens: int) -> Guess:
        """Return at most `max_tokens` ids that may follow token_ids, which may have grown, or been cut, since last time."""

    def close(self) -> None:
        """Give back what it holds; harmless when repeated."""
