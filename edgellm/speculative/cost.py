"""What checking guesses costs and what it brings: the two are measured, and choose how many ids to guess.

The time of a step with M rows is measured on this machine as steps happen; the share of guesses that were right is counted
by kind. Knows seconds and counts only.
"""

from __future__ import annotations

from typing import NamedTuple

MAX_DRAFT = 24
"""Ids guessed at once at most."""
PRIOR_ROWS = {1: 1.0, 2: 1.06, 3: 1.25, 4: 1.4, 5: 1.6, 6: 1.85, 7: 2.1, 8: 2.35, 12: 3.3, 16: 4.0, 25: 5.9}
"""Time of M rows in units of one, until this machine's own have been measured: docs/performance.md."""
LEARN_FASTER, LEARN_SLOWER = (
    0.5,
    0.1,
)  # weights of a measurement below and above what is known: noise only ever adds time
PRIOR_RATE, PRIOR_COUNT = 0.6, 2.0
FORGET = 0.97  # of what was counted, with each new guess: texts change
MIN_GAIN = 1.03  # expected speed-up below which nothing is guessed
PROBE_EVERY = 32  # steps without a guess by a draft model after which it is tried all the same


class StepTimes:
    """Seconds of a decode step by its number of rows."""

    def __init__(self) -> None:
        self._seconds: dict[int, float] = {}

    def note(self, rows: int, seconds: float) -> None:
        """Take a measurement; one slow step (another program ran) moves the figure by little."""
        known = self._seconds.get(rows)
        if known is None:
            self._seconds[rows] = seconds
        else:
            weight = LEARN_FASTER if seconds < known else LEARN_SLOWER
            self._seconds[rows] = known + weight * (min(seconds, 2 * known) - known)

    def relative(self, rows: int) -> float:
        """Time of `rows` rows in units of one row: measured, or by what was measured next to it."""
        one = self._seconds.get(1)
        if one is None:
            return _prior(rows)
        if rows in self._seconds:
            return max(self._seconds[rows] / one, 1.0)
        near = min((m for m in self._seconds if m > 1), key=lambda m: abs(m - rows), default=None)
        scale = 1.0 if near is None else self._seconds[near] / one / _prior(near)
        return max(_prior(rows) * scale, 1.0)

    @property
    def measured(self) -> list[int]:
        """Numbers of rows whose time has been measured."""
        return list(self._seconds)

    @property
    def is_known(self) -> bool:
        """True once a plain step has been measured."""
        return 1 in self._seconds

    def of(self, rows: int) -> float:
        """Seconds of `rows` rows, 0 while nothing is known."""
        return self._seconds.get(1, 0.0) * self.relative(rows)


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


def choose_length(times: StepTimes, rate: float, longest: int, other_rows: int = 0, guess_cost: float = 0.0) -> Plan:
    """Plan the guess, of up to `longest` ids, with the most expected tokens per second; of none if none pays.

    rate: see Luck. other_rows: rows of other sequences in the same step, whose time is paid anyway. guess_cost: what a guessed
    id costs to make, in units of a plain step of one row.
    """
    plain = times.relative(other_rows + 1)
    best, best_gain, expected, chance = 0, MIN_GAIN, 1.0, 1.0
    for length in range(1, longest + 1):
        chance *= rate
        expected += chance
        # Tokens of the others come at the slower step's pace, so its cost counts for all.
        tokens, before = other_rows + expected, other_rows + 1.0
        gain = tokens / before * plain / (times.relative(other_rows + 1 + length) + length * guess_cost)
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
