"""Embeddings: one vector for a text, made of what the model knows at each of its tokens.

Knows ids only. Next hop: `engine.py` computes the hidden states.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from .errors import OptionError
from .sequence import Sequence
from .shared_engine import SharedEngine

POOLINGS = ("mean", "last")


def embed(
    shared: SharedEngine,
    prompts: Iterable[list[int]],
    size: int,
    pooling: str,
    normalize: bool,
    adapters: tuple[float, ...] = (),
) -> NDArray[np.float32]:
    """Return f32[N, size], a row per list of ids: the mean of all hidden states after the final norm, or the last of them.

    All run in one queue, as many at once as there are slots. Raises OptionError, and ContextError for a prompt that is too long
    before any is computed.
    """
    if pooling not in POOLINGS:
        raise OptionError(f"pooling must be one of {', '.join(POOLINGS)}, not {pooling!r}")
    keep = "all" if pooling == "mean" else "last"
    sequences = [Sequence(ids, keep_hidden=keep, adapters=adapters) for ids in prompts]
    for sequence in sequences:
        shared.engine.check(sequence)
    rows = np.empty((len(sequences), size), np.float32)
    try:
        for sequence in sequences:
            shared.add(sequence)
        for row, sequence in zip(rows, sequences, strict=True):
            shared.wait(sequence, 0)
            if sequence.error is not None:
                raise sequence.error
            assert sequence.hidden is not None
            row[:] = _pool(sequence.hidden, normalize)
            sequence.hidden = None  # of many long texts these are large
    finally:
        for sequence in sequences:
            shared.cancel(sequence)
    return rows


def _pool(hidden: NDArray[np.float32], normalize: bool) -> NDArray[np.float64]:
    """The mean of f32[n, E], added in the order of the tokens; of length 1 if wanted (zeros stay zeros)."""
    mean: NDArray[np.float64] = hidden.mean(axis=0, dtype=np.float64)
    length = float(np.sqrt(np.square(mean).sum()))
    return mean / length if normalize and length > 0 else mean
