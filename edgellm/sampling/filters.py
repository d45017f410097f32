"""From a row of logits to a token id: pure functions, the same filters in the same order as llama.cpp's default chain.

top_k, then top_p, then min_p, then temperature, then a draw. Each filter keeps a prefix of the ids ordered by logit
(the lower id first among equals) and at least one. A vocabulary is large and a sort of it slow, so work that touches
every id is one or two passes of NumPy and only the few candidates are sorted. Knows no model and no text.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..config import SamplingParams
from ..errors import ModelFileError

if TYPE_CHECKING:
    from numpy.random import Generator

GREEDY_TEMPERATURE = 1e-6  # at or below it, the best id takes all
COLUMN = 64  # ids whose maximum stands for them while top_k looks for a bound
NUM_BINS = 256  # of the histogram with which top_p finds its bound
BINS_PER_UNIT = 8
LOWEST = float(np.finfo(np.float32).min)

Ids = NDArray[np.intp]
Floats = NDArray[np.float64]


def is_greedy(params: SamplingParams) -> bool:
    """True if nothing is drawn: the best id is taken."""
    return params.temperature <= GREEDY_TEMPERATURE or params.top_k == 1


def sample(logits: NDArray[np.float32], params: SamplingParams, rng: Generator | None = None) -> int:
    """Choose a token id from logits f32[V]; -inf forbids an id.

    rng: random numbers, unused and allowed to be None if is_greedy(params). Raises ModelFileError if a logit is NaN or
    +inf, or all are -inf.
    """
    if is_greedy(params):
        return int(best_id(logits))
    assert rng is not None, "only greedy sampling does without random numbers"
    ids, probabilities = distribution(logits, params)
    return int(ids[draw(probabilities, rng)])


def best_id(logits: NDArray[np.float32]) -> np.intp:
    """Return the id with the largest logit, the lowest such id on ties."""
    best = np.argmax(logits)  # the first NaN, if there is one
    _check_finite(logits[best])
    return best


def distribution(logits: NDArray[np.float32], params: SamplingParams) -> tuple[Ids, Floats]:
    """Return the ids that the filters keep and their probabilities at params.temperature > 0, which add up to 1.

    Ids are ordered by logit, or by id where no filter is on. Raises as `sample` does.
    """
    top = float(logits[best_id(logits)])
    ids, total = _candidates(logits, params, top)
    depths = logits[ids].astype(np.float64) - top
    count = len(ids)
    if params.top_p < 1.0:
        total = float(np.exp(depths).sum()) if total is None else total
        reached = np.searchsorted(np.cumsum(np.exp(depths)), params.top_p * total, side="left")
        count = min(count, int(reached) + 1)
    if params.min_p > 0.0:
        count = min(count, int(np.count_nonzero(depths >= math.log(params.min_p))))
    weights = np.exp(depths[:count] / params.temperature)
    return ids[:count], weights / weights.sum()


def draw(probabilities: Floats, rng: Generator) -> int:
    """Return an index, each with its probability."""
    cumulative = np.cumsum(probabilities)
    index = np.searchsorted(cumulative, rng.random() * cumulative[-1], side="right")
    # Rounding may push the drawn number up to the total: then the last index that has a probability is meant.
    return int(min(index, np.searchsorted(cumulative, cumulative[-1], side="left")))


def top_k_ids(logits: NDArray[np.float32], k: int) -> Ids:
    """Return the k ids with the largest logits, best first, the lower id first among equals. 1 <= k <= V."""
    size = len(logits) // COLUMN
    if k >= size // 2:
        bound = np.partition(logits, len(logits) - k)[len(logits) - k]
        return _sorted_ids(logits, np.flatnonzero(logits >= bound))[:k]
    # Columns of 64 ids, `size` apart. The k-th largest of their maxima is a lower bound of the k-th largest logit, and
    # only columns that reach it can hold one of the k.
    grid = logits[: size * COLUMN].reshape(COLUMN, size)
    maxima = grid.max(axis=0)
    bound = np.partition(maxima, size - k)[size - k]
    columns = np.flatnonzero(maxima >= bound)
    ids = (np.arange(COLUMN)[:, None] * size + columns).ravel()
    ids = np.concatenate([ids[grid[:, columns].ravel() >= bound], np.arange(size * COLUMN, len(logits))])
    return _sorted_ids(logits, ids)[:k]


def _candidates(logits: NDArray[np.float32], params: SamplingParams, top: float) -> tuple[Ids, float | None]:
    """Return ids, best first, that include all that the filters will keep; and what top_p is a share of.

    That is the sum of exp(logit - top) over everything top_k keeps; None if it is the sum over the returned ids.
    """
    if 0 < params.top_k < len(logits):
        ids = top_k_ids(logits, params.top_k)
        return ids[logits[ids] > -np.inf], None
    if params.top_p >= 1.0 and params.min_p <= 0.0:
        return np.flatnonzero(logits > -np.inf), None
    weights, total = None, None
    with np.errstate(over="ignore"):  # a logit of -3e38 below one of 3e38 is as good as forbidden
        if params.top_p < 1.0:
            weights = np.exp(logits - np.float32(top))
            total = float(weights.sum(dtype=np.float64))
        bound = _bound(logits, params, top, weights)
    return _sorted_ids(logits, np.flatnonzero((logits >= bound) & (logits > -np.inf))), total


def _bound(
    logits: NDArray[np.float32], params: SamplingParams, top: float, weights: NDArray[np.float32] | None
) -> float:
    """Return a logit that everything min_p and top_p keep reaches, and preferably little else."""
    if params.min_p > 0.0 or weights is None:
        lowest = top + math.log(params.min_p)
        return max(lowest - 1e-6 * (1.0 + abs(lowest)), LOWEST)
    # A histogram of the mass by depth below the best: how deep top_p reaches, rounded up, without a sort.
    bins = np.minimum((np.float32(top) - logits) * BINS_PER_UNIT, NUM_BINS - 1).astype(np.intp)
    mass = np.cumsum(np.bincount(bins, weights, NUM_BINS))
    reached = int(np.searchsorted(mass, (params.top_p + 1e-5) * mass[-1]))
    if reached + 2 >= NUM_BINS:
        return -math.inf
    return max(top - (reached + 2) / BINS_PER_UNIT, LOWEST)


def _sorted_ids(logits: NDArray[np.float32], ids: Ids) -> Ids:
    ids = np.sort(ids)
    return ids[np.argsort(-logits[ids], kind="stable")]


def _check_finite(top: np.float32) -> None:
    if not np.isfinite(top):
        raise ModelFileError(
            f"the model's best logit is {top}: its weights are damaged, or a kernel failed; verify the file's checksum"
        )
