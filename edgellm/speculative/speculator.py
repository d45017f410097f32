"""Decides how many ids to guess for a sequence in a step, and learns from what came of it.

The main path of speculation: `guess` before a step, `note_step` and `note_result` after it. A guess is checked by choosing
as always and comparing: for a guess of one id at a time that is the acceptance rule of speculative sampling (Leviathan et
al. 2023, Chen et al. 2023; the guess's own distribution is a single point), and since the random number of a place depends
on seed and place alone, the text is the very one that plain decoding gives. Knows ids, times and counts. Next hops:
`ngram.py` and `draft.py` guess, `cost.py` counts.
"""

from __future__ import annotations

from collections.abc import Callable
from weakref import WeakKeyDictionary

from ..sequence import Sequence
from .cost import MAX_DRAFT, Luck, StepTimes, choose_length
from .proposer import NO_GUESS, Guess, Proposer

RATE_STEPS = 32
"""Rates between 0 and 1 that are told apart when a length is chosen."""
RENEW_EVERY = 32
"""Steps after which lengths are chosen anew from the times that have been measured since."""


class _State:
    """What is known of one sequence."""

    def __init__(self, proposer: Proposer) -> None:
        self.proposer = proposer
        self.luck = Luck()
        self.guess: Guess = NO_GUESS
        self.num_drafted = 0


class Speculator:
    """Guesses for the sequences of one engine.

    make_proposer: makes what guesses for a new sequence. always: guess as much as possible, whatever it costs (for tests).
    """

    def __init__(
        self,
        make_proposer: Callable[[Sequence], Proposer],
        max_draft: int = MAX_DRAFT,
        *,
        always: bool = False,
    ) -> None:
        self.times = StepTimes()
        self._make_proposer = make_proposer
        self._max_draft = max_draft
        self._always = always
        self._states: WeakKeyDictionary[Sequence, _State] = WeakKeyDictionary()
        self._lengths: dict[tuple[int, int], int] = {}
        self._num_steps = 0

    def guess(self, sequence: Sequence, longest: int, other_rows: int) -> list[int]:
        """Return ids to check after the sequence's last one: at most `longest`, none where it would not pay.

        other_rows: what the step computes for other sequences.
        """
        state = self._states.get(sequence)
        if state is None:
            state = self._states[sequence] = _State(self._make_proposer(sequence))
        longest = min(longest, self._max_draft)
        state.guess = state.proposer.propose(sequence.token_ids, longest) if longest > 0 else NO_GUESS
        wanted = longest if self._always else self._length(state.luck.rate(state.guess.kind), other_rows)
        draft = state.guess.token_ids[:wanted]
        state.num_drafted = len(draft)
        return draft

    def note_step(self, rows: int, seconds: float) -> None:
        """A step of `rows` rows, none of them of a prompt, took so long."""
        self.times.note(rows, seconds)
        self._num_steps += 1
        if self._num_steps % RENEW_EVERY == 0:
            self._lengths.clear()

    def note_result(self, sequence: Sequence, token_ids: list[int]) -> None:
        """The step chose token_ids after the sequence's last one; a guess that was not checked is compared all the same."""
        state = self._states.get(sequence)
        if state is None or not state.guess.token_ids or not token_ids:
            return
        tried = max(state.num_drafted, 1)
        right = 0
        for guessed, chosen in zip(state.guess.token_ids[:tried], token_ids):  # noqa: B905
            if guessed != chosen:
                break
            right += 1
        state.luck.note(state.guess.kind, right, tried)

    def forget(self, sequence: Sequence) -> None:
        """A sequence has ended."""
        state = self._states.pop(sequence, None)
        if state is not None:
            state.proposer.close()

    def _length(self, rate: float, other_rows: int) -> int:
        if not self.times.is_known:
            return 0  # the first steps are plain, to know what one costs
        key = round(rate * RATE_STEPS), other_rows
        if key not in self._lengths:
            self._lengths[key] = choose_length(self.times, key[0] / RATE_STEPS, self._max_draft, other_rows)
        return self._lengths[key]
