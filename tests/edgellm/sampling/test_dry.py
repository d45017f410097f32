"""DRY: matches by the Z-algorithm and step by step, breakers across tokens, the plain statement."""

from __future__ import annotations

import numpy as np
import plain_sampling as plain
from hypothesis import given
from hypothesis import strategies as st

from edgellm.config import SamplingParams
from edgellm.sampling.dry import Breakers, Dry, suffix_matches

IDS = st.lists(st.integers(0, 3), max_size=60)


def plain_matches(ids: list[int]) -> list[int]:
    def length(place: int) -> int:
        n = 0
        while n < place and ids[place - 1 - n] == ids[-1 - n]:
            n += 1
        return n

    return [length(place) for place in range(len(ids))]


@given(IDS)
def test_matches_are_those_one_counts(ids: list[int]) -> None:
    assert suffix_matches(np.array(ids, np.int64)).tolist() == plain_matches(ids)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=80), st.integers(0, 79), st.integers(-1, 30), st.integers(1, 3))
def test_penalties_equal_the_plain_statement_step_by_step(
    ids: list[int], start: int, last_n: int, allowed: int
) -> None:
    """Id 4 is the breaker "|"; the text arrives in steps, some of it at once."""
    params = SamplingParams(
        dry_multiplier=0.7, dry_base=1.5, dry_last_n=last_n, dry_allowed_length=allowed, dry_breakers=("|",)
    )
    dry = Dry(params, lambda token_id: b"|" if token_id == 4 else b"x")
    for count in range(min(start, len(ids) - 1) + 1, len(ids) + 1):
        logits = np.zeros(5, np.float32)
        if Dry.is_on(params):
            dry.apply(logits, ids[:count])
        want = plain.dry(dict.fromkeys(range(5), 0.0), params, ids[:count], frozenset({4}))
        np.testing.assert_allclose(logits, [want[i] for i in range(5)], rtol=1e-6)


def test_a_breaker_is_found_however_it_is_cut() -> None:
    pieces = [b"a", b"\n", b"Us", b"er", b": b", b"c"]
    breakers = Breakers(["\nUser:"], pieces.__getitem__)
    ids = np.arange(6)
    assert breakers.count_since(ids, 0) == 1
    assert breakers.count_since(ids, 5) is None
    assert breakers.count_since(ids[:4], 0) is None
    assert Breakers(["a", "c"], pieces.__getitem__).count_since(ids, 0) == 0


def test_long_repetitions_stay_finite() -> None:
    logits = np.zeros(3, np.float32)
    Dry(SamplingParams(dry_multiplier=1.0)).apply(logits, [1] * 5000)
    assert np.isfinite(logits).all() and logits[1] < -1e30 and logits[2] == 0.0
