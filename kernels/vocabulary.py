"""What a sampler asks of a row of logits, in plain NumPy: the oracle of the compiled one, and what runs without kernels.

Knows values and their indices, no token and no rule of choosing. Next hop: `cpu/vocabulary.py` does the same compiled.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.intp]
Floats = NDArray[np.float32]

LEAST_POWER = -125.0
"""2**x of what is less counts as 0."""
LOWEST = float(np.finfo(np.float32).min)
LOG2_E = 1.4426950408889634


class Vocabulary:
    """Looks through one row at a time: `read` it first. What `read` was given must stay as it is until the next `read`.

    top: the largest value; best_id: the lowest id that has it.
    weights: what `weigh` computed; mean_depth: the mean, by weight, of (value - top) * scale.
    """

    def __init__(self) -> None:
        self.row: Floats = np.empty(0, np.float32)
        self.top, self.best_id = np.nan, -1
        self.weights: Floats = self.row
        self.mean_depth = 0.0

    def read(self, row: Floats) -> float:
        """Look at f32[V] -> the largest value; NaN if one is NaN or +inf."""
        self.row = row
        self.best_id = int(np.argmax(row))  # the first NaN, if there is one
        top = float(row[self.best_id])
        self.top = float("nan") if top == np.inf else top
        return self.top

    def top_ids(self, k: int) -> Ids:
        """Return the ids of the k largest values, best first; where some are equal the lower ids, and they first."""
        bound = np.partition(self.row, len(self.row) - k)[len(self.row) - k]
        return best(self.row, np.flatnonzero(self.row >= bound), k)

    def likely(self, k: int) -> Ids:
        """Return, in order, k ids or some more that include the k likeliest: the others' values are lower. 1 <= k <= V."""
        return np.sort(self.top_ids(k))

    def reaching(self, bound: float) -> Ids:
        """Return the ids of values that are at least `bound`, in order; -inf never is."""
        return np.flatnonzero(self.row >= np.float32(max(bound, LOWEST)))

    def weigh(self, scale: float = 1.0) -> float:
        """Set weights f32[V] to exp((value - top) * scale), 0 below 2**-125, and return their sum."""
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            powers = (self.row - np.float32(self.top)) * np.float32(scale * LOG2_E)
            self.weights = np.where(powers >= LEAST_POWER, np.exp2(powers), np.float32(0))
        total = float(self.weights.sum(dtype=np.float64))
        powers = np.where(powers >= LEAST_POWER, powers, np.float32(0))
        self.mean_depth = float(np.dot(self.weights.astype(np.float64), powers)) / total / LOG2_E
        return total

    def forbid_below(self, bound: float) -> None:
        """Put -inf in place of all values below a bound, which is at most the top; the weights are of before."""
        self.row[self.row < np.float32(bound)] = -np.inf

    def pick(self, share: float) -> int:
        """Return the id where the weights of all ids up to it exceed `share` (0 to 1) of their sum; it has a weight itself."""
        return pick(self.weights, share * float(self.weights.sum(dtype=np.float64)))

    def depths(self, per_unit: float, count: int) -> NDArray[np.float64]:
        """Return f64[count]: weights by depth below the top in bins of 1 / per_unit; what lies deeper is left out."""
        ids = self.reaching(self.top - count / per_unit)
        with np.errstate(over="ignore", invalid="ignore"):
            bins = np.fmin((np.float32(self.top) - self.row[ids]) * np.float32(per_unit), np.float32(count))
        return np.bincount(bins.astype(np.intp), self.weights[ids], count + 1)[:count].astype(np.float64)

    def moments(self) -> tuple[int, float, float]:
        """Return count, mean and standard deviation (of the population) of all values but -inf."""
        finite = self.row[self.row > -np.inf].astype(np.float64)
        return len(finite), float(finite.mean()), float(finite.std())


def best(row: Floats, ids: Ids, k: int) -> Ids:
    """Return those k of `ids` (in order) that have the largest values, best first; the lower ids among equals, and they first."""
    return ids[np.argsort(-row[ids], kind="stable")[:k]]


def pick(weights: NDArray[np.floating[Any]], wanted: float) -> int:
    """Return the first index where the running sum exceeds `wanted`; the last one with a weight if none does."""
    return find(np.add.accumulate(weights, dtype=np.float64), wanted)


def find(sums: NDArray[np.float64], wanted: float) -> int:
    """Return the first index of a running sum that exceeds `wanted`; the first that reaches the end if none does."""
    found = int(sums.searchsorted(wanted, side="right"))
    return found if found < len(sums) else int(sums.searchsorted(sums[-1]))
