"""Decides how many ids to guess for a sequence in a step, and learns from what came of it.

The main path of speculation: `guess` before a step, `note_step` and `note_result` after it. A guess is checked by choosing
as always and comparing: for a guess of one id at a time that is the acceptance rule of speculative sampling (Leviathan et
al. 2023, Chen et al. 2023; the guess's own distribution is a single point), and since the random number of a place depends
on seed and place alone, the text is the very one that plain decoding gives. Knows ids, times and counts. Next hops:
`ngram.py` and `draft.py` guess, `cost.py` counts.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as ListOf
from weakref import WeakKeyDictionary

from ..sequence import Sequence
from .cost import MAX_DRAFT, MIN_GAIN, PROBE_EVERY, Luck, Plan, StepTimes, choose_length
from .proposer import DRAFT_KIND, NO_GUESS, Guess, Proposer

RATE_STEPS = 32
"""Rates between 0 and 1 that are told apart when a length is chosen."""
COST_STEPS = 100
"""Costs of a guess, in hundredths of a step, that are told apart."""
RENEW_EVERY = 32
"""Steps after which lengths are chosen anew from the times that have been measured since."""


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
        self._plans: dict[tuple[int, int, int, int], Plan] = {}
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
        best = Plan(0, 1.0)
        state.guess, state.num_checked = NO_GUESS, 0
        for proposer in state.proposers:
            if self._always:
                guess = proposer.propose(sequence.token_ids, longest)
                plan = Plan(len(guess.token_ids), 2.0)
            elif proposer.step_s is None:
                guess = proposer.propose(sequence.token_ids, longest)
                plan = self._plan(state.luck.rate(guess.kind), other_rows, 0.0, again) if guess.token_ids else best
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
            self._plans.clear()

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
        state.luck.note(state.guess.kind, right, tried)

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

    def _plan(self, rate: float, other_rows: int, guess_cost: float, again: int) -> Plan:
        if not self.times.is_known:
            return Plan(0, 1.0)  # the first steps are plain, to know what one costs
        key = round(rate * RATE_STEPS), other_rows, round(guess_cost * COST_STEPS), again
        if key not in self._plans:
            rate, guess_cost = key[0] / RATE_STEPS, key[2] / COST_STEPS
            self._plans[key] = choose_length(
                self.times,
                rate,
                self._max_draft,
                other_rows,
                guess_cost,
                rows_again=again,
                feeds_again=self.feeds_again,
            )
        return self._plans[key]

    def _plan_draft(self, state: _State, step_s: float, other_rows: int, again: int) -> Plan:
        """A draft model's guesses cost time to make, so its luck is not known unless it is tried now and then."""
        if not self.times.is_known:
            return Plan(0, 1.0)
        plan = Plan(0, 1.0)
        if step_s:
            plan = self._plan(state.luck.rate(DRAFT_KIND), other_rows, step_s / self.times.of(1), again)
        if plan.length == 0 and (step_s == 0.0 or state.num_steps % PROBE_EVERY == 0):
            return Plan(2, MIN_GAIN)
        return plan
