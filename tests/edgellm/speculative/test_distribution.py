"""At temperature 1 with guesses, what is drawn follows the target's own distribution, three tokens deep.

The expected frequencies come from the logits alone, by products of probabilities: no sampler and no engine.
EDGELLM_TEST_DRAWS=100000 draws more than there is time for every day.
"""

from __future__ import annotations

import itertools
import os
from collections import Counter
from functools import lru_cache

import numpy as np
import pytest
import scripted_model
from scripted_model import expected_logits, make_engine

from edgellm.config import SamplingParams
from edgellm.sequence import Sequence
from edgellm.speculative import Speculator
from edgellm.speculative.proposer import Guess

PROMPT = [3, 1, 4]
NUM_DRAWS = int(os.environ.get("EDGELLM_TEST_DRAWS", "6000"))
TOP_K, DEPTH = 4, 3


class Fixed:
    """Always guesses the same path, or another one for every second sequence."""

    step_s = None

    def __init__(self, path: list[int]) -> None:
        self._path = path

    def propose(self, token_ids: list[int], max_tokens: int) -> Guess:
        done = len(token_ids) - len(PROMPT)
        guess = self._path[done : done + max_tokens]
        return Guess(guess, [1] * len(guess))

    def close(self) -> None:
        pass


def distribution(token_ids: list[int]) -> dict[int, float]:
    """Probabilities of what follows: the TOP_K best at temperature 1."""
    logits = expected_logits(token_ids, [None]).astype(np.float64)
    best = np.argsort(-logits, kind="stable")[:TOP_K]
    weights = np.exp(logits[best] - logits[best].max())
    return dict(zip(best.tolist(), (weights / weights.sum()).tolist(), strict=True))


def expected_paths() -> dict[tuple[int, ...], float]:
    paths: dict[tuple[int, ...], float] = {(): 1.0}
    for _ in range(DEPTH):
        paths = {
            (*path, token_id): p * q
            for path, p in paths.items()
            for token_id, q in distribution([*PROMPT, *path]).items()
        }
    return paths


def test_joint_frequencies_of_three_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    cached = lru_cache(maxsize=None)(lambda key: scripted_model_logits([list(ids) for ids in key]))
    scripted_model_logits = scripted_model.logits_of
    monkeypatch.setattr(scripted_model, "logits_of", lambda histories: cached(tuple(map(tuple, histories))).copy())
    expected = expected_paths()
    likely, unlikely = max(expected, key=lambda p: expected[p]), min(expected, key=lambda p: expected[p])
    paths = itertools.cycle([list(likely), list(unlikely), [(i + 1) % 50 for i in likely]])
    speculator = Speculator(lambda sequence: [Fixed(next(paths))], always=True)
    engine, _ = make_engine(max_context=64, prefill_chunk=64, max_sequences=32, speculator=speculator)
    counts: Counter[tuple[int, ...]] = Counter()
    accepted = 0
    for first in range(0, NUM_DRAWS, 32):
        params = [
            SamplingParams(temperature=1.0, top_k=TOP_K, top_p=1.0, min_p=0.0, seed=seed, max_tokens=DEPTH)
            for seed in range(first, min(first + 32, NUM_DRAWS))
        ]
        sequences = [Sequence(PROMPT, p) for p in params]
        for sequence in sequences:
            engine.add(sequence)
        while engine.has_work:
            engine.step()
        counts.update(tuple(s.output_ids) for s in sequences)
        accepted += sum(s.num_accepted for s in sequences)
    engine.close()
    assert set(counts) <= set(expected) and accepted > NUM_DRAWS // 10
    chi_square = sum((counts[p] - NUM_DRAWS * q) ** 2 / (NUM_DRAWS * q) for p, q in expected.items())
    freedom = len(expected) - 1
    # Mean `freedom`, deviation sqrt(2 * freedom): four deviations are passed once in 30,000.
    assert abs(chi_square - freedom) < 4 * np.sqrt(2 * freedom), f"chi-square {chi_square:.1f} of {freedom}"
