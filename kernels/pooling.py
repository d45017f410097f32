"""From a text's hidden states to its vector or its scores: pooling, then a few small matrices.

Done once a text, so this is plain NumPy for every backend: sums in float64 and in one order, the same bits whatever the
threads. Knows names of weights, no file. Sources: Reimers and Gurevych 2019 (arXiv:1908.10084) for the poolings,
Nogueira and Cho 2019 (arXiv:1901.04085) for scores. Next hop: `models/pooling.py` reads a file's keys and tensors.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Doubles = NDArray[np.float64]

KINDS = ("none", "mean", "cls", "last", "rank")
"""none: every token keeps its vector. cls: the first token's, last: the last one's. rank: scores, made of one of them."""


@dataclass(frozen=True, slots=True)
class Dense:
    """y = activation(weight @ x + bias): names of f32[N, K] and f32[N]; activation: "tanh" or none."""

    weight: str
    bias: str | None = None
    activation: str | None = None


@dataclass(frozen=True, slots=True)
class Pooling:
    """What a model does to the hidden states of a text.

    kind: one of KINDS. dense: matrices after it; width: numbers that come out of them, 0: as many as a hidden state has.
    scores: matrices that make scores, of the hidden state of of_scores, "cls" or "last"; none if the model gives none.
    softmax: of the scores.
    """

    kind: str = "mean"
    dense: tuple[Dense, ...] = ()
    width: int = 0
    scores: tuple[Dense, ...] = ()
    of_scores: str = "cls"
    softmax: bool = False

    @property
    def weights(self) -> tuple[str, ...]:
        """Names of all weights of its matrices."""
        return tuple(name for d in (*self.dense, *self.scores) for name in (d.weight, d.bias) if name is not None)


NO_HEAD = Pooling()
"""For a file that says nothing: vectors are means, and there are no scores."""


def pool(hidden: NDArray[np.float32], kind: str) -> Doubles:
    """f32[n, E] of a whole text -> f64[E]; kind: "mean", "cls" or "last". Where only the last row is given, that is it."""
    if kind == "mean":
        mean: Doubles = hidden.mean(axis=0, dtype=np.float64)
        return mean
    assert kind in ("cls", "last"), kind
    row: Doubles = hidden[0 if kind == "cls" else -1].astype(np.float64)
    return row


def apply(vector: Doubles, steps: Iterable[Dense], weights: Mapping[str, NDArray[Any]]) -> Doubles:
    """Send a pooled vector through matrices."""
    for dense in steps:
        vector = np.einsum("nk,k->n", weights[dense.weight], vector)
        if dense.bias is not None:
            vector = vector + weights[dense.bias].ravel()
        if dense.activation is not None:
            assert dense.activation == "tanh", dense.activation
            vector = np.tanh(vector)
    return vector


def softmax(scores: Doubles) -> Doubles:
    """Exponentials, scaled to the sum 1."""
    scaled: Doubles = np.exp(scores - scores.max())
    scaled /= scaled.sum()
    return scaled


def normalise(vector: Doubles) -> Doubles:
    """The same direction with length 1; zeros stay zeros."""
    length = float(np.sqrt(np.square(vector).sum()))
    return vector / length if length > 0 else vector
