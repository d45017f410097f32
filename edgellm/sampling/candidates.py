"""What is left to choose from: all ids, or a few. Filters make it less; each keeps at least one id.

While all ids are left, values stay where they are and questions go to the compiled scans of `kernels.vocabulary`; as soon as a
filter has left a few, they are float64 arrays in order of id. Knows no filter. Next hop: `filters.py`.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ..errors import ModelFileError
from ..kernels.vocabulary import Ids, Vocabulary, pick

Floats = NDArray[np.float64]

_BINS_PER_UNIT = 16
_MOST_DEPTH = 87.0  # what is less likely by e**87 has no weight


class Candidates:
    """Ids and their logits, divided by a temperature.

    logits: f32[V], -inf forbids; what changes it (penalties) calls `refresh`. temperature: of the filters so far.
    Raises ModelFileError if a logit is NaN or +inf, or all are -inf.
    """

    def __init__(self, logits: NDArray[np.float32], vocabulary: Vocabulary) -> None:
        self.logits = logits
        self.temperature = 1.0
        self._vocabulary = vocabulary
        self._ids: Ids | None = None
        self.top = 0.0
        self.refresh()

    @property
    def is_all(self) -> bool:
        """True while no filter has left out anything."""
        return self._ids is None

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
        """The ids left, in order."""
        if self._ids is None:
            self._ids = np.flatnonzero(self.logits > -np.inf)
        return self._ids

    def refresh(self) -> None:
        """Look again at logits that have changed."""
        if self._ids is None:
            self.top = self._vocabulary.read(self.logits)
        else:
            self.top = float(self.logits[self._ids].max())
        if not math.isfinite(self.top):
            raise ModelFileError(
                f"the model's best logit is {'nan or inf' if self.top != -math.inf else self.top}: its weights are damaged,"
                " or a kernel failed; verify the file's checksum"
            )

    def depths(self) -> Floats:
        """f64 <= 0: how far each id's logit, over the temperature, lies from the best."""
        return (self.logits[self.ids].astype(np.float64) - self.top) / self.temperature

    def weights(self) -> Floats:
        """exp(depths): the best has 1."""
        with np.errstate(under="ignore"):
            weights: Floats = np.exp(self.depths())
        return weights

    def probabilities(self) -> Floats:
        """What softmax makes of the ids left; their sum is 1."""
        weights = self.weights()
        return weights / weights.sum()

    def best_first(self) -> Ids:
        """Indices into `ids`, the likeliest first, the lower id first among equals."""
        order: Ids = np.argsort(-self.logits[self.ids], kind="stable")
        return order

    def keep(self, which: NDArray[np.generic]) -> None:
        """Leave those of `ids` that a mask or indices name."""
        ids = self.ids[which]
        self._ids = ids if which.dtype == np.bool_ else np.sort(ids)
        self.top = float(self.logits[self._ids].max())

    # ---- while all are left: without an array of all of them ----
    def keep_best(self, k: int) -> None:
        """Leave the k likeliest ids, the lower ones among equals. 1 <= k."""
        if self._ids is not None:
            if k < len(self._ids):
                self.keep(self.best_first()[:k])
        elif k < len(self.logits):
            ids = self._vocabulary.top_ids(k)
            self._ids = ids[self.logits[ids] > -np.inf]

    def keep_depth(self, depth: float) -> None:
        """Leave ids whose logit, over the temperature, is at least the best's plus `depth` <= 0."""
        if self._ids is None:
            bound = self.top + depth * self.temperature
            self._ids = self._vocabulary.reaching(bound - 1e-6 * (1.0 + abs(bound)))
        self.keep(self.depths() >= depth)

    def total(self) -> float:
        """Sum of exp(depths) over the ids left."""
        return self._vocabulary.weigh(1.0 / self.temperature) if self._ids is None else float(self.weights().sum())

    def keep_mass(self, share: float) -> None:
        """Leave the fewest of the likeliest ids whose probabilities add up to `share` < 1."""
        total = self.total()
        if self._ids is None:
            self._ids = self._reaching_mass(share, total)
        sums = np.cumsum(self.weights()[order := self.best_first()])
        count = int(np.searchsorted(sums, share * total, side="left")) + 1
        if count < len(order):
            self.keep(order[:count])

    def _reaching_mass(self, share: float, total: float) -> Ids:
        """Return ids, and not many more, that include the likeliest whose weights add up to a share of all."""
        # What lies deeper than this cannot have the rest of the mass, even if it were all ids.
        deepest = min(math.log(len(self.logits) / ((1.0 - share) * total)) + 0.1, _MOST_DEPTH)
        scale = 1.0 / self.temperature
        count = max(int(deepest * _BINS_PER_UNIT) + 1, 2)
        sums = np.cumsum(self._vocabulary.depths(_BINS_PER_UNIT * scale, count))
        reached = int(np.searchsorted(sums, (share + 1e-5) * total)) + 2
        if reached >= count:
            return self.ids
        return self._vocabulary.reaching(self.top - reached * self.temperature / _BINS_PER_UNIT)

    def drop_above(self, depth: float) -> None:
        """Leave out all ids of at least this depth but the last of them, the least likely, and the higher id among equals."""
        ids = self._ids
        if ids is None:
            bound = self.top + depth * self.temperature
            ids = self._vocabulary.reaching(bound - 1e-6 * (1.0 + abs(bound)))
        depths = (self.logits[ids].astype(np.float64) - self.top) / self.temperature
        above = ids[depths >= depth]
        if len(above) < 2:
            return
        last = above[np.argsort(-self.logits[above], kind="stable")[-1]]
        self._forbid(above[above != last])

    def _forbid(self, ids: Ids) -> None:
        if self._ids is None:
            self.logits[ids] = -np.inf
            self.refresh()
        else:
            self.keep(~np.isin(self._ids, ids))

    def deviation(self) -> float:
        """Standard deviation of the logits left, over the temperature."""
        if self._ids is None:
            return self._vocabulary.moments()[1] / self.temperature
        return float(self.depths().std())

    def entropy(self) -> tuple[float, int]:
        """Entropy in nats of the ids left, and how many they are."""
        if self._ids is None:
            total = self.total()
            weights = self._vocabulary.weights
            with np.errstate(invalid="ignore"):
                depths = np.where(weights > 0, (self.logits - np.float32(self.top)) / np.float32(self.temperature), 0)
            mean = float(np.dot(weights, depths.astype(np.float32))) / total
            return math.log(total) - mean, int(np.count_nonzero(self.logits > -np.inf))
        weights = self.weights()
        total = float(weights.sum())
        return math.log(total) - float(np.dot(weights, self.depths())) / total, len(weights)

    def draw(self, number: float) -> int:
        """Return an id, each with its probability; number: from 0 to 1."""
        if self._ids is None:
            self._vocabulary.weigh(1.0 / self.temperature)
            return self._vocabulary.pick(number)
        weights = self.weights()
        return int(self._ids[pick(weights, number * float(weights.sum()))])
