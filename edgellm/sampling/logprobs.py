"""What the model thought of a place: logarithms of probabilities, before any filter or temperature. Knows no chain."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..kernels.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """What the model thought at one place: natural logarithms of probabilities, before any filter or temperature.

    logprob: of the chosen id. top: the likeliest ids with theirs, best first; the lower id first among equals.
    """

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


class Logprobs:
    """Log-softmax of one row f32[V]; the sum's error is some 1e-7. The row must stay as it is."""

    def __init__(self, logits: NDArray[np.float32], vocabulary: Vocabulary, num_top: int) -> None:
        self._logits = logits
        top = vocabulary.read(logits)
        self.is_usable = math.isfinite(top)
        self._normaliser = top + math.log(vocabulary.weigh()) if math.isfinite(top) else top
        self._top: tuple[tuple[int, float], ...] = ()
        if num_top and math.isfinite(top):
            ids = vocabulary.top_ids(min(num_top, len(logits)))
            self._top = tuple((int(i), self._of(int(i))) for i in ids)

    def of(self, token_id: int) -> TokenLogprobs:
        """What to report if this id was chosen."""
        return TokenLogprobs(token_id, self._of(token_id), self._top)

    def _of(self, token_id: int) -> float:
        return float(self._logits[token_id]) - self._normaliser
