"""What is left to choose from: all ids, or a few. Filters make it less; each keeps at least one id.

While all ids are left, values stay where they are and questions go to the compiled scans of `kernels.vocabulary`; as soon as a
filter has left a few, they are float64 arrays with the best in front, so that most filters cut off an end. Knows no filter.
Next hop: `filters.py`.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..errors import ModelFileError
from ..kernels.vocabulary import Ids, Vocabulary, find

Floats = NDArray[np.float64]

FEW = (128, 1024)
"""How many ids are looked at first for a share of the mass: mostly they have it."""
MANY = 4096
"""Ids from which forbidding the others is cheaper than a list of them."""
_DOUBT = 1e-5  # of a mass: what rounding may have done to a sum
_FINENESS = 64  # bins of a unit of depth
_BINS_PER_KEY, _NUM_BINS = 16, 1024
_MOST_DEPTH = 87.0  # what is less likely by e**87 has no weight


class Candidates:
    """Ids and their logits, divided by a temperature.

    is_read: the vocabulary has read these very logits, and they are numbers.
    logits: f32[V], -inf forbids; what changes it (penalties) calls `refresh`. temperature: of the filters so far.
    Raises ModelFileError if a logit is NaN or +inf, or all are -inf.
    """

    def __init__(self, logits: NDArray[np.float32], vocabulary: Vocabulary, is_read: bool = False) -> None:
        self.logits = logits
        self.temperature = 1.0
        self._vocabulary = vocabulary
        self._ids: Ids | None = None
        self._values = np.empty(0)  # the logits of _ids
        self._weighed = (0.0, 0.0)  # the temperature that all ids were weighed at, and the sum
        self.top = vocabulary.top
        if not is_read:
            self.refresh()

    @property
    def is_open(self) -> bool:
        """True while more than one id is left."""
        return self._ids is None or len(self._ids) > 1

    @property
    def only(self) -> int:
        """The one id that is left."""
        return int(self.ids[0])

    @property
    def ids(self) -> Ids:
        """The ids left, the likeliest first, the lower ones first among equals."""
        if self._ids is None:
            self._choose(np.flatnonzero(self.logits > -np.inf))
        assert self._ids is not None
        return self._ids

    def refresh(self) -> None:
        """Look again at logits that have changed."""
        if self._ids is None:
            self.top, self._weighed = self._vocabulary.read(self.logits), (0.0, 0.0)
        else:
            self._choose(np.sort(self._ids))
        require_number(self.top)

    def depths(self) -> Floats:
        """f64 <= 0: how far each id's logit, over the temperature, lies from the best."""
        if self._ids is None:
            self._choose(self.ids)
        return (self._values - self.top) / self.temperature

    def weights(self) -> Floats:
        """exp(depths): the best has 1."""
        weights: Floats = np.exp(self.depths())
        return weights

    def probabilities(self) -> Floats:
        """What softmax makes of the ids left; their sum is 1."""
        weights = self.weights()
        probabilities: Floats = weights / weights.sum()
        return probabilities

    def probability(self, token_id: int) -> float:
        """What softmax gives one of the ids left."""
        return math.exp((float(self.logits[token_id]) - self.top) / self.temperature) / self.total()

    def keep(self, which: NDArray[np.generic]) -> None:
        """Leave those of `ids` that a mask or indices name."""
        if which.dtype != np.bool_:
            which = np.sort(which)
        self._set(self.ids[which], self._values[which])

    def _choose(self, ids: Ids, is_sorted: bool = False) -> None:
        """Leave some ids, which are in order, or sorted as `ids` says."""
        values = self.logits[ids].astype(np.float64)
        if not is_sorted:
            order = np.argsort(-values, kind="stable")
            ids, values = ids[order], values[order]
        self._set(ids, values)

    def _set(self, ids: Ids, values: Floats) -> None:
        self._ids, self._values, self.top = ids, values, float(values[0])

    def _cut(self, start: int, end: int) -> None:
        assert self._ids is not None
        if end - start < len(self._ids):
            self._set(self._ids[start:end], self._values[start:end])

    # ---- what filters do ----
    def keep_best(self, k: int) -> None:
        """Leave the k likeliest ids, the lower ones among equals. 1 <= k."""
        if self._ids is not None:
            self._cut(0, k)
        elif k < len(self.logits):
            self._choose(self._vocabulary.top_ids(k), is_sorted=True)
            self._cut(0, len(self._values) - int(np.count_nonzero(self._values == -np.inf)))

    def keep_depth(self, depth: float) -> None:
        """Leave ids whose logit, over the temperature, is at least the best's plus `depth` <= 0."""
        if self._ids is not None:
            self._cut(0, int(np.count_nonzero(self.depths() >= depth)))
            return
        ids = self._near(depth)
        ids = ids[self._depths_of(ids) >= depth]
        if len(ids) > MANY:
            self._forbid_below(float(self.logits[ids].min()))
        else:
            self._choose(ids)

    def keep_mass(self, share: float) -> None:
        """Leave the fewest of the likeliest ids whose probabilities add up to `share` < 1."""
        total = self.total()
        if self._ids is None:
            ids = self._reach_mass(share, total)
            if ids is None:
                return
            self._choose(ids)
        sums = np.add.accumulate(self.weights())
        self._cut(0, int(sums.searchsorted(share * total)) + 1)

    def keep_typical(self, share: float) -> None:
        """Leave the fewest ids, those whose depth is nearest the mean depth first, that have more than `share` of the mass."""
        wanted, mean = share * self.total(), self._mean_depth()
        ids = self._reach_typical(wanted, mean) if self._ids is None else self._ids
        depths = self._depths_of(ids)
        self._choose(np.sort(ids[fewest(np.abs(depths - mean), np.exp(depths), wanted, past=True)]))

    def _reach_typical(self, wanted: float, mean: float) -> Ids:
        """Return, in order, ids that include those nearest the mean depth with a mass."""
        radius = max(mean + self._deepest(wanted), -mean)
        count = int((radius - mean) * _FINENESS) + 2
        sums = np.zeros(count + 1)
        np.add.accumulate(self._vocabulary.depths(_FINENESS / self.temperature, count), out=sums[1:])
        steps, centre = np.arange(count), int(-mean * _FINENESS)
        masses = sums[np.minimum(centre + steps + 1, count)] - sums[np.maximum(centre - steps, 0)]
        bins = int(masses.searchsorted(wanted + _DOUBT * sums[-1])) + 2
        if bins >= count:
            return np.flatnonzero(self.logits > -np.inf)
        ids = self._near(mean - bins / _FINENESS)
        return ids[self._depths_of(ids) <= mean + bins / _FINENESS]

    def _deepest(self, wanted: float) -> float:
        """A depth below which ids cannot have what a mass lacks of the total, even if it were all ids; as a number above 0."""
        return min(math.log(len(self.logits) / max(self.total() - wanted, 1e-30)) + 0.1, _MOST_DEPTH)

    def _reach_mass(self, share: float, total: float) -> Ids | None:
        """Return ids, and few more, that include the likeliest with a share of the mass; None if they are many: all others are
        forbidden then."""
        scans, wanted = self._vocabulary, share * total
        for few in FEW:
            ids = scans.likely(min(few, len(self.logits)))  # what is forbidden has no weight and is left out later
            if float(scans.weights[ids].sum(dtype=np.float64)) >= wanted + _DOUBT * total:
                return ids
        width = self.temperature / _FINENESS
        sums = np.cumsum(scans.depths(1.0 / width, max(int(self._deepest(wanted) * _FINENESS) + 1, 2)))
        end = int(np.searchsorted(sums, wanted + _DOUBT * total)) + 2
        first = int(np.searchsorted(sums, wanted - _DOUBT * total)) - 1
        ids = scans.reaching(self.top - end * width) if end < len(sums) else self.ids
        if len(ids) <= MANY or first < 1:
            return ids
        self._cut_mass(ids, first, float(sums[first - 1]), self.top - first * width, wanted)
        return None

    def _cut_mass(self, ids: Ids, first: int, mass: float, edge: float, wanted: float) -> None:
        """Forbid all but the ids above an edge, which have a mass, and those of the others that are needed."""
        values = self.logits[ids]
        near = np.flatnonzero(values <= np.float32(edge))
        others, values = ids[near], values[near]
        kept = values[fewest(-values.astype(np.float64), self._vocabulary.weights[others], max(wanted - mass, 0.0))]
        bound = kept.min()
        self._forbid_below(float(bound))
        self._forbid(others[values == bound][np.count_nonzero(kept == bound) :])

    def _near(self, depth: float) -> Ids:
        """Ids, while all are left, among which are all of a depth of at least `depth`."""
        bound = self.top + depth * self.temperature
        return self._vocabulary.reaching(bound - 1e-6 * (1.0 + abs(bound)))

    def _depths_of(self, ids: Ids) -> Floats:
        depths: Floats = (self.logits[ids].astype(np.float64) - self.top) / self.temperature
        return depths

    def total(self) -> float:
        """Sum of exp(depths) over the ids left."""
        if self._ids is not None:
            return float(self.weights().sum())
        if self._weighed[0] != self.temperature:
            self._weighed = self.temperature, self._vocabulary.weigh(1.0 / self.temperature)
        return self._weighed[1]

    def drop_above(self, depth: float) -> None:
        """Leave out all ids of at least this depth but the last of them, the least likely, the highest id among equals."""
        if self._ids is not None:
            self._cut(max(int(np.count_nonzero(self.depths() >= depth)) - 1, 0), len(self._ids))
            return
        near = self._near(depth)
        above = near[self._depths_of(near) >= depth]
        if len(above) > 1:
            last = above[np.argsort(-self.logits[above], kind="stable")[-1]]
            self._forbid(above[above != last])

    def _forbid(self, ids: Ids) -> None:
        """Leave out some while all are left."""
        if len(ids):
            self.logits[ids] = -np.inf
            self.refresh()

    def _forbid_below(self, bound: float) -> None:
        self._vocabulary.forbid_below(bound)
        self._weighed = (0.0, 0.0)

    def deviation(self) -> float:
        """Standard deviation of the logits left, over the temperature."""
        return self._vocabulary.moments()[2] / self.temperature if self._ids is None else float(self.depths().std())

    def entropy(self) -> tuple[float, int]:
        """Entropy in nats of the ids left, and how many they are."""
        count = self._vocabulary.moments()[0] if self._ids is None else len(self._ids)
        return math.log(self.total()) - self._mean_depth(), count

    def _mean_depth(self) -> float:
        """The mean, by weight, of the depths."""
        total = self.total()
        return (
            self._vocabulary.mean_depth if self._ids is None else float(np.dot(self.weights(), self.depths())) / total
        )

    def draw(self, number: float) -> int:
        """Return an id, each with its probability; number: from 0 to 1."""
        if self._ids is None:
            self.total()
            return self._vocabulary.pick(number)
        sums = np.add.accumulate(self.weights())
        return int(self._ids[find(sums, number * float(sums[-1]))])


def require_number(top: float) -> None:
    """Raise ModelFileError unless the largest logit is a number."""
    if not math.isfinite(top):
        raise ModelFileError(
            f"the model's best logit is {'nan or inf' if top != -math.inf else top}: its weights are damaged, or a kernel"
            " failed; verify the file's checksum"
        )


def fewest(keys: Floats, weights: NDArray[np.floating[Any]], wanted: float, past: bool = False) -> Ids:
    """Return indices of the fewest smallest keys whose weights add up to `wanted`, or with `past` to more; all if they do not.

    The lower index first among equal keys; in no order. A few thousand are sorted; of more, only those near the end.
    """
    side: Literal["left", "right"] = "right" if past else "left"
    if len(keys) <= MANY:
        order = np.argsort(keys, kind="stable")
        count = int(np.searchsorted(np.cumsum(weights[order], dtype=np.float64), wanted, side)) + 1
        return order[:count]
    low = float(keys.min())
    bins = np.minimum((keys - low) * _BINS_PER_KEY, _NUM_BINS - 1).astype(np.intp)
    sums = np.cumsum(np.bincount(bins, weights, _NUM_BINS))
    last = int(np.searchsorted(sums, wanted, side))
    before, near = np.flatnonzero(bins < last), np.flatnonzero(bins == last)
    order = near[np.argsort(keys[near], kind="stable")]
    reached = np.cumsum(weights[order], dtype=np.float64) + (sums[last - 1] if last else 0.0)
    return np.concatenate([before, order[: int(np.searchsorted(reached, wanted, side)) + 1]])
