"""The sampler of one sequence: filters in order, then a draw. What it remembers can be taken back.

Knows no model and no text. Next hop: `filters.py`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence as ListOf
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.random import PCG64, Generator
from numpy.typing import NDArray

from ..config import SamplingParams
from .filters import is_greedy, sample


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """What the model thought at one place: natural logarithms of probabilities, before any filter or temperature.

    logprob: of the chosen id. top: the likeliest ids with theirs, best first.
    """

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


class Sampler:
    """Chooses ids for one sequence."""

    def __init__(self, params: SamplingParams) -> None:
        self._params = params

    def choose(
        self, logits: NDArray[np.float32], token_ids: ListOf[int], num_prompt: int
    ) -> tuple[int, TokenLogprobs | None]:
        """Choose what follows token_ids from logits f32[V], which may be overwritten; -inf forbids an id.

        Raises ModelFileError if a logit is NaN or +inf, or all are -inf.
        """
        return sample(logits, self._params, None if is_greedy(self._params) else self._rng), None

    def accept(self, token_id: int) -> None:
        """Note a generated id, chosen here or forced."""

    def take_back(self, num_tokens: int) -> None:
        """Undo the last `num_tokens` calls of `accept`."""

    @cached_property
    def _rng(self) -> Generator:
        seed = self._params.seed
        return Generator(PCG64(int.from_bytes(os.urandom(8), "little") if seed is None else seed))
