"""What checking guesses costs and what it brings: the two are measured, and choose how many ids to guess.

The time of a step with M rows is measured on this machine as steps happen; the share of guesses that were right is counted
by kind. Knows seconds and counts only.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from collections.abc import Sequence as ListOf
from typing import NamedTuple

from ..config import MAX_DRAFT_TOKENS

MAX_DRAFT = MAX_DRAFT_TOKENS
"""Ids guessed at once at most."""
PRIOR_ROWS = {
    1: 1.0,
    2: 1.07,
    3: 1.45,
    4: 1.5,
    5: 2.3,
    8: 2.5,
    9: 3.4,
    12: 3.8,
    13: 4.7,
    16: 5.1,
    17: 5.8,
    20: 6.3,
    25: 8.0,
}
"""Time of M rows in units of one, until this machine's own have been measured: docs/performance.md. Kernels take four at once."""
SAMPLES = 4
"""Measurements of which the least counts: other programs only ever add time."""
STALE_STEPS = 64
"""Steps after which a measurement no longer counts: one that was disturbed would else keep its number from being tried."""
PRIOR_RATES, PRIOR_RATE, PRIOR_COUNT = (0.4, 0.5, 0.6, 0.75, 0.85, 0.92), 0.6, 2.0
"""What an id is worth before its kind has been met: by length of match, 1, 2, 4 ... 32; others; as how many ids that counts."""
FORGET = 0.97  # of what was counted, with each new guess: texts change
MIN_GAIN = 1.03  # expected speed-up below which nothing is guessed
PROBE_EVERY = 32  # steps without a guess by a draft model after which it is tried all the same


class StepTimes:
    """Seconds of a decode step by its number of rows. Those of several rows are kept in units of one row at that time:
    both grow with the text."""

    def __init__(self) -> None:
        self._num_steps = 0
        self._one: deque[float] = deque(maxlen=SAMPLES)
        self._relative: dict[int, deque[float]] = {}
        self._noted: dict[int, int] = {}  # when each number of rows was last measured; the first time does not count

    def note(self, rows: int, seconds: float) -> None:
        """Take a measurement. The first one of so many rows says nothing: tapes were written, caches were cold."""
        self._num_steps += 1
        is_first, is_stale = rows not in self._noted, self._is_stale(rows)
        self._noted[rows] = self._num_steps
        if is_first:
            return
        if rows == 1:
            self._one.append(seconds)
        elif self.is_known:
            known = deque[float](maxlen=SAMPLES) if is_stale else self._relative.get(rows, deque(maxlen=SAMPLES))
            known.append(seconds / min(self._one))
            self._relative[rows] = known

    def relative(self, rows: int) -> float:
        """Time of `rows` rows in units of one row: measured, or by what was measured next to it; at most that of more rows."""
        if rows == 1:
            return 1.0
        known = {m: min(samples) for m, samples in self._relative.items() if not self._is_stale(m)}
        least = min((x for m, x in known.items() if m >= rows), default=math.inf)
        if rows not in known:
            near = min(known, key=lambda m: abs(m - rows), default=None)
            least = min(least, _prior(rows) * (1.0 if near is None else known[near] / _prior(near)))
        return max(least, 1.0)

    @property
    def measured(self) -> list[int]:
        """Numbers of rows whose time has been measured."""
        return sorted([1] * self.is_known + list(self._relative))

    @property
    def is_known(self) -> bool:
        """True once a plain step has been measured."""
        return bool(self._one)

    def of(self, rows: int) -> float:
        """Seconds of `rows` rows, 0 while nothing is known."""
        return min(self._one) * self.relative(rows) if self._one else 0.0

    def _is_stale(self, rows: int) -> bool:
        return self._num_steps - self._noted.get(rows, -STALE_STEPS) >= STALE_STEPS


class Luck:
    """How often a guessed id of a kind was right, given that all before it were; forgetting slowly."""

    def __init__(self) -> None:
        self._right: dict[int, float] = {}
        self._tried: dict[int, float] = {}

    def note(self, kinds: ListOf[int], right: int) -> None:
        """Of a guess that was checked, the first `right` ids were right; what came after the first wrong one says nothing."""
        for i, kind in enumerate(kinds[: right + 1]):
            self._right[kind] = self._right.get(kind, 0.0) * FORGET + (i < right)
            self._tried[kind] = self._tried.get(kind, 0.0) * FORGET + 1.0

    def rate(self, kind: int) -> float:
        """Probability that the next id of a guess is right, given that all before it were."""
        right, tried = self._right.get(kind, 0.0), self._tried.get(kind, 0.0)
        prior = PRIOR_RATES[kind] if kind < len(PRIOR_RATES) else PRIOR_RATE
        return (right + prior * PRIOR_COUNT) / (tried + PRIOR_COUNT)


class Plan(NamedTuple):
    """How many ids to guess, and by how much that is expected to be faster than none."""

    length: int
    gain: float


NO_PLAN = Plan(0, 1.0)


def choose_length(
    costs: ListOf[float],
    rates: Iterable[float],
    other_rows: int = 0,
    guess_cost: float = 0.0,
    costs_again: ListOf[float] = (),
) -> Plan:
    """Plan the guess with the most expected tokens per second; none if none pays.

    costs: what a step costs with 0, 1, 2 ... guessed ids. rates: of each id in turn, see Luck. other_rows: rows of other
    sequences in the same step, whose time is paid anyway. guess_cost: what a guessed id costs to make, in units of costs.
    costs_again: given where the right ids of a guess that was partly wrong are rows of the next step once more (layers with a
    state): what that step costs with 0, 1, 2 ... of them.
    """
    best, best_gain, expected, chance, again = 0, MIN_GAIN, 1.0, 1.0, 0.0
    for length, (cost, rate) in enumerate(zip(costs[1:], rates, strict=False), 1):
        if costs_again and length > 1:  # length - 1 ids are right, and the last is wrong
            again += chance * (1.0 - rate) * (costs_again[length - 1] - costs_again[0])
        chance *= rate
        expected += chance
        # Tokens of the others come at the slower step's pace, so its cost counts for all.
        gain = (other_rows + expected) / (other_rows + 1.0) * costs[0] / (cost + length * guess_cost + again)
        if gain > best_gain:
            best, best_gain = length, gain
    return Plan(best, best_gain) if best else NO_PLAN


def _prior(rows: int) -> float:
    if rows in PRIOR_ROWS:
        return PRIOR_ROWS[rows]
    below = max((m for m in PRIOR_ROWS if m < rows), default=1)
    above = min((m for m in PRIOR_ROWS if m > rows), default=None)
    if above is None:
        return PRIOR_ROWS[below] * rows / below
    share = (rows - below) / (above - below)
    return PRIOR_ROWS[below] + share * (PRIOR_ROWS[above] - PRIOR_ROWS[below])
