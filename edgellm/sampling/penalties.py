"""Penalties for ids that have occurred: repetition, presence, frequency. Counts are kept from token to token.

Knows ids and logits. Next hop: `history.py` has the ids.
"""

from __future__ import annotations

from collections.abc import Sequence as ListOf

import numpy as np
from numpy.typing import NDArray

from ..config import SamplingParams
from .history import History


def penalise(
    logits: NDArray[np.float32],
    ids: NDArray[np.int64],
    counts: NDArray[np.int32],
    repeat: float,
    presence: float,
    frequency: float,
    scale: float = 1.0,
) -> None:
    """Lower in place the logits of ids that occurred counts[i] > 0 times; an id may be there more than once.

    repeat: divides positive and multiplies negative logits (Keskar et al. 2019, CTRL). presence: taken off once, frequency: for
    each time (OpenAI's API). scale: the temperature that the logits have still to be divided by.
    """
    values = logits[ids].astype(np.float64)
    with np.errstate(over="ignore"):
        values = np.where(values > 0.0, values / repeat, values * repeat)
        logits[ids] = np.maximum(values - (presence + frequency * counts) * scale, -np.finfo(np.float32).max)


class Penalties:
    """The penalties of one sequence, over its last `repeat_last_n` ids."""

    def __init__(self, params: SamplingParams) -> None:
        self._params = params
        self._window = params.repeat_last_n
        self._history = History()
        self._counts = np.zeros(0, np.int32)
        self._start = 0  # the window's first place
        self._is_counted = False

    @staticmethod
    def is_on(params: SamplingParams) -> bool:
        """True if they change anything."""
        some = params.repeat_penalty != 1.0 or params.presence_penalty != 0.0 or params.frequency_penalty != 0.0
        return some and params.repeat_last_n != 0

    def apply(self, logits: NDArray[np.float32], token_ids: ListOf[int], scale: float = 1.0) -> None:
        """Change logits f32[V] of what follows token_ids in place; -inf stays."""
        if len(self._counts) != len(logits):
            self._counts = np.zeros(len(logits), np.int32)
        self._move(token_ids)
        ids = self._history.ids[self._start :]
        ids = ids[logits[ids] > -np.inf]
        params = self._params
        counts = self._counts[ids]
        penalise(logits, ids, counts, params.repeat_penalty, params.presence_penalty, params.frequency_penalty, scale)

    def take_back(self, num_tokens: int) -> None:
        """Forget all ids but the first `num_tokens`; counts begin anew."""
        self._counts[self._history.ids[self._start :]] = 0
        self._history.take_back(num_tokens)
        self._start, self._is_counted = 0, False

    def _move(self, token_ids: ListOf[int]) -> None:
        """Count what is new and uncount what has left the window."""
        new = self._history.extend(token_ids)
        ids = self._history.ids
        start = max(0, len(ids) - self._window) if self._window >= 0 else 0
        if not self._is_counted:
            self._start, self._is_counted, new = start, True, ids[start:]
        np.add.at(self._counts, new, 1)
        np.subtract.at(self._counts, ids[self._start : start], 1)
        self._start = start
