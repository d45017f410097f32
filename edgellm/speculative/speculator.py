"""Decides how many ids to guess for a sequence in a step, and learns from what came of it.

The main path of speculation: `guess` before a step, `note_step` and `note_result` after it. A guess is checked by choosing
as always and comparing: for a guess of one id at a time that is the acceptance rule of speculative sampling (Leviathan et
al. 2023, Chen et al. 2023; the guess's own distribution is a single point), and since the random number of a place depends
on seed and place alone, the text is the very one that plain decoding gives. Knows ids, times and counts. Next hops:
`ngram.py` and `draft.py` guess, `cost.py` counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from collections.abc import Sequence as ListOf
from itertools import repeat
from weakref import WeakKeyDictionary

from ..sequence import Sequence
from .cost import MAX_DRAFT, MIN_GAIN, NO_PLAN, PROBE_EVERY, Luck, Plan, StepTimes, choose_length
from .proposer import DRAFT_KIND, NO_GUESS, Guess, Proposer

RENEW_EVERY = 16
"""Steps after which lengths are chosen by the times that have been measured since."""


class _State:
    """What is known of one sequence. guess: what its last step was given, checked: how much of it."""

    def __init__(self, proposers: ListOf[Proposer]) -> None:
        self.proposers = proposers
        self.luck = Luck()
        self.guess: Guess = NO_GUESS
        self.num_checked = 0
        self.num_steps = 0


class Speculator:
    """Guesses for the sequences of one engine.

    make_proposers: makes what guesses for a new sequence; the one that promises most is taken in each step.
    always: guess as much as possible, whatever it costs (for tests). close: what to do in the end.
    feeds_again: right ids before a wrong one are computed once more with the next step: see cost.choose_length.
    """

    def __init__(
        self,
        make_proposers: Callable[[Sequence], ListOf[Proposer]],
        max_draft: int = MAX_DRAFT,
        *,
        always: bool = False,
        close: Callable[[], None] | None = None,
    ) -> None:
        self.times = StepTimes()
        self.make_proposers = make_proposers
        self.feeds_again = False
        self._max_draft = max_draft
        self._always = always
        self._close = close
        self._states: WeakKeyDictionary[Sequence, _State] = WeakKeyDictionary()
        self._costs: dict[int, list[float]] = {}  # by rows that are paid for anyway: see choose_length
        self._num_steps = 0

    def guess(self, sequence: Sequence, longest: int, other_rows: int) -> list[int]:
        """Return ids to check after the sequence's last one: at most `longest`, none where it would not pay.

        other_rows: what the step computes for other sequences. What it has to compute once more for this one is pending.
        """
        state = self._states.get(sequence)
        if state is None:
            state = self._states[sequence] = _State(self.make_proposers(sequence))
        state.num_steps += 1
        longest, again = min(longest, self._max_draft), sequence.num_pending - 1
        best = NO_PLAN
        state.guess, state.num_checked = NO_GUESS, 0
        for proposer in state.proposers:
            if self._always:
                guess = proposer.propose(sequence.token_ids, longest)
                plan = Plan(len(guess.token_ids), 2.0)
            elif proposer.step_s is None:
                guess = proposer.propose(sequence.token_ids, longest)
                plan = self._plan((state.luck.rate(kind) for kind in guess.kinds), other_rows, again)
            else:
                plan = self._plan_draft(state, proposer.step_s, other_rows, again)
                if plan.gain <= best.gain:
                    continue
                guess = proposer.propose(sequence.token_ids, min(plan.length, longest))
            if plan.gain > best.gain or not state.guess.token_ids:
                best, state.guess = plan, guess
                state.num_checked = min(plan.length, len(guess.token_ids))
        return state.guess.token_ids[: state.num_checked]

    def note_step(self, rows: int, seconds: float) -> None:
        """A step of `rows` rows, none of them of a prompt, took so long."""
        self.times.note(rows, seconds)
        self._num_steps += 1
        if self._num_steps % RENEW_EVERY == 0:
            self._costs.clear()

    def note_result(self, sequence: Sequence, token_ids: list[int]) -> None:
        """The step chose token_ids after the sequence's last one; a guess that was not checked is compared all the same."""
        state = self._states.get(sequence)
        if state is None or not state.guess.token_ids or not token_ids:
            return
        tried = max(state.num_checked, 1)
        right = 0
        for guessed, chosen in zip(state.guess.token_ids[:tried], token_ids):  # noqa: B905
            if guessed != chosen:
                break
            right += 1
        state.luck.note(state.guess.kinds[:tried], right)

    def forget(self, sequence: Sequence) -> None:
        """A sequence has ended."""
        state = self._states.pop(sequence, None)
        if state is not None:
            for proposer in state.proposers:
                proposer.close()

    def close(self) -> None:
        """Give back what guesses; harmless when repeated."""
        for state in list(self._states.values()):
            for proposer in state.proposers:
                proposer.close()
        self._states.clear()
        if self._close is not None:
            self._close()
            self._close = None

    def _plan(self, rates: Iterable[float], other_rows: int, again: int, guess_cost: float = 0.0) -> Plan:
        """again: rows of this sequence that the step computes once more, with or without a guess."""
        if not self.times.is_known:
            return NO_PLAN  # the first steps are plain, to know what one costs
        costs_again = self._costs_with(other_rows) if self.feeds_again else ()
        return choose_length(self._costs_with(other_rows + again), rates, other_rows, guess_cost, costs_again)

    def _costs_with(self, paid_rows: int) -> list[float]:
        if paid_rows not in self._costs:
            self._costs[paid_rows] = [self.times.relative(paid_rows + n) for n in range(1, self._max_draft + 2)]
        return self._costs[paid_rows]

    def _plan_draft(self, state: _State, step_s: float, other_rows: int, again: int) -> Plan:
        """A draft model's guesses cost time to make, so its luck is not known unless it is tried now and then."""
        if not self.times.is_known:
            return NO_PLAN
        plan = NO_PLAN
        if step_s:
            plan = self._plan(repeat(state.luck.rate(DRAFT_KIND)), other_rows, again, step_s / self.times.of(1))
        if plan.length == 0 and (step_s == 0.0 or state.num_steps % PROBE_EVERY == 0):
            return Plan(2, MIN_GAIN)
        return plan
