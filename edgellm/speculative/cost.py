"""What checking guesses costs and what it brings: the two are measured, and choose how many ids to guess.

The time of a step with M rows is measured on this machine as steps happen; the share of guesses that were right is counted
by kind. Knows seconds and counts only.
"""

from __future__ import annotations

import math
from collections import deque
from typing import NamedTuple

MAX_DRAFT = 24
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
PRIOR_RATE, PRIOR_COUNT = 0.6, 2.0
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
    """How often a guess of a kind was right, forgetting slowly."""

    def __init__(self) -> None:
        self._right: dict[int, float] = {}
        self._tried: dict[int, float] = {}

    def note(self, kind: int, right: int, tried: int) -> None:
        """Of `tried` guessed ids, the first `right` were right; what came after the first wrong one says nothing."""
        checked = min(right + 1, tried)
        self._right[kind] = self._right.get(kind, 0.0) * FORGET + right
        self._tried[kind] = self._tried.get(kind, 0.0) * FORGET + checked

    def rate(self, kind: int) -> float:
        """Probability that the next id of a guess is right, given that all before it were."""
        right, tried = self._right.get(kind, 0.0), self._tried.get(kind, 0.0)
        return (right + PRIOR_RATE * PRIOR_COUNT) / (tried + PRIOR_COUNT)


class Plan(NamedTuple):
    """How many ids to guess, and by how much that is expected to be faster than none."""

    length: int
    gain: float


def choose_length(
    times: StepTimes,
    rate: float,
    longest: int,
    other_rows: int = 0,
    guess_cost: float = 0.0,
    *,
    rows_again: int = 0,
    feeds_again: bool = False,
) -> Plan:
    """Plan the guess, of up to `longest` ids, with the most expected tokens per second; of none if none pays.

    rate: see Luck. other_rows: rows of other sequences in the same step, whose time is paid anyway. guess_cost: what a guessed
    id costs to make, in units of a plain step of one row. rows_again: rows of this sequence that the step computes once more,
    with or without a guess. feeds_again: the right ids of a guess of which some are wrong are rows of the next step once more.
    """
    paid = other_rows + rows_again
    plain = times.relative(paid + 1)
    best, best_gain, expected, chance, again_s = 0, MIN_GAIN, 1.0, 1.0, 0.0
    for length in range(1, longest + 1):
        if feeds_again and length > 1:  # length - 1 ids are right, and the last is wrong
            again_s += chance * (1.0 - rate) * (times.relative(other_rows + length) - times.relative(other_rows + 1))
        chance *= rate
        expected += chance
        # Tokens of the others come at the slower step's pace, so its cost counts for all.
        tokens, before = other_rows + expected, other_rows + 1.0
        gain = tokens / before * plain / (times.relative(paid + 1 + length) + length * guess_cost + again_s)
        if gain > best_gain:
            best, best_gain = length, gain
    return Plan(best, best_gain if best else 1.0)


def _prior(rows: int) -> float:
    if rows in PRIOR_ROWS:
        return PRIOR_ROWS[rows]
    below = max((m for m in PRIOR_ROWS if m < rows), default=1)
    above = min((m for m in PRIOR_ROWS if m > rows), default=None)
    if above is None:
        return PRIOR_ROWS[below] * rows / below
    share = (rows - below) / (above - below)
    return PRIOR_ROWS[below] + share * (PRIOR_ROWS[above] - PRIOR_ROWS[below])
