"""Sampling: each filter against a plain sorted float64 statement, ties, extremes, draws, speed. Cases O19."""

from __future__ import annotations

import itertools
import math
import timeit

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from edgellm.config import SamplingParams
from edgellm.errors import EdgeLLMError
from edgellm.sampling.filters import best_id, distribution, draw, is_greedy, sample, top_k_ids


def plain_order(logits: NDArray[np.float32]) -> list[int]:
    return sorted(range(len(logits)), key=lambda i: (-float(logits[i]), i))


def plain_distribution(logits: NDArray[np.float32], params: SamplingParams) -> tuple[list[int], list[float], float]:
    """The filters as one would say them; and how near to a cut the decision was."""
    values = [float(x) for x in logits]
    ids = plain_order(logits)
    if 0 < params.top_k < len(ids):
        ids = ids[: params.top_k]
    ids = [i for i in ids if values[i] > -math.inf]
    masses = [math.exp(values[i] - values[ids[0]]) for i in ids]
    count, nearness = len(ids), 1.0
    if params.top_p < 1.0:
        sums = list(itertools.accumulate(masses))
        shares = [s / sums[-1] for s in sums]
        nearness = min(abs(share - params.top_p) for share in shares)
        count = next((i + 1 for i, share in enumerate(shares) if share >= params.top_p), count)
    if params.min_p > 0.0:
        depths = [values[i] - values[ids[0]] for i in ids]
        count = min(count, sum(depth >= math.log(params.min_p) for depth in depths))
    ids = ids[:count]
    weights = [math.exp((values[i] - values[ids[0]]) / params.temperature) for i in ids]
    return ids, [w / sum(weights) for w in weights], nearness


def make_logits(kind: str, size: int, seed: int) -> NDArray[np.float32]:
    rng = np.random.default_rng(seed)
    if kind == "equal":
        return np.full(size, rng.normal(), np.float32)
    if kind == "ties":
        return rng.integers(-3, 3, size).astype(np.float32)
    logits = (rng.normal(0, {"flat": 0.1, "normal": 3.0, "steep": 40.0, "masked": 3.0}[kind], size)).astype(np.float32)
    if kind == "masked":
        logits[rng.random(size) < 0.7] = -np.inf
        logits[rng.integers(size)] = 1.0
    return logits


KINDS = ["equal", "ties", "flat", "normal", "steep", "masked"]


@settings(max_examples=250, deadline=None)
@given(
    st.sampled_from(KINDS),
    st.sampled_from([1, 2, 63, 64, 65, 300, 1000, 5000]),
    st.integers(0, 2**32),
    st.sampled_from([0, -1, 2, 5, 40, 77, 10**9]),
    st.sampled_from([0.0, 0.1, 0.5, 0.95, 0.999, 1.0]),
    st.sampled_from([0.0, 0.001, 0.05, 0.5, 1.0]),
    st.sampled_from([0.1, 0.8, 1.0, 3.0]),
)
def test_filters_equal_the_plain_statement(
    kind: str, size: int, seed: int, top_k: int, top_p: float, min_p: float, temperature: float
) -> None:
    logits = make_logits(kind, size, seed)
    params = SamplingParams(top_k=top_k, top_p=top_p, min_p=min_p, temperature=temperature)
    expected_ids, expected, nearness = plain_distribution(logits, params)
    ids, probabilities = distribution(logits, params)
    if nearness < 1e-6:  # a cut within rounding of float32 may fall on either side
        assert abs(len(ids) - len(expected_ids)) <= 1
        return
    order = np.argsort(-logits[ids], kind="stable")  # with no filter at all the order is by id
    assert ids[order].tolist() == expected_ids
    np.testing.assert_allclose(probabilities[order], expected, rtol=1e-9)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(KINDS), st.integers(1, 9000), st.integers(0, 2**32), st.data())
def test_top_k_is_exact_with_lower_ids_first(kind: str, size: int, seed: int, data: st.DataObject) -> None:
    logits = make_logits(kind, size, seed)
    k = data.draw(st.integers(1, size))
    assert top_k_ids(logits, k).tolist() == plain_order(logits)[:k]


EXTREMES = list(
    itertools.product([0, -1, 1, 10**9, 40], [0.0, 1.0, 0.5], [0.0, 1.0, 0.05], [0.0, 1e-9, 2e-6, 1e9, math.inf])
)


@pytest.mark.parametrize("kind", [*KINDS, "huge", "one"])
def test_extremes_always_give_an_id_and_no_warning(kind: str) -> None:
    if kind == "huge":
        logits = np.linspace(-3.4e38, 3.4e38, 4200, dtype=np.float32)
    elif kind == "one":
        logits = np.full(4200, -np.inf, np.float32)
        logits[4199] = -5.0
    else:
        logits = make_logits(kind, 4200, 5)
    allowed = np.flatnonzero(logits > -np.inf)
    with np.errstate(all="warn", under="ignore"):
        for top_k, top_p, min_p, temperature in EXTREMES:
            params = SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
            token_id = sample(logits, params, np.random.default_rng(1))
            assert token_id in allowed
            if temperature <= 1e-6 or top_k == 1 or top_p == 0.0:
                assert token_id == plain_order(logits)[0]
            if min_p == 1.0:
                assert logits[token_id] == logits.max()


def test_off_values_keep_everything() -> None:
    logits = make_logits("steep", 500, 1)
    for top_k in (0, -1, 500, 10**9):
        ids, _ = distribution(logits, SamplingParams(top_k=top_k, top_p=1.0, min_p=0.0, temperature=1.0))
        assert sorted(ids.tolist()) == list(range(500))


def test_the_lowest_id_wins_a_tie() -> None:
    logits = np.zeros(1000, np.float32)
    logits[[700, 300, 900]] = 5.0
    assert best_id(logits) == 300
    assert sample(logits, SamplingParams(temperature=0.0)) == 300
    assert sample(logits, SamplingParams(top_k=1, temperature=5.0)) == 300
    assert distribution(logits, SamplingParams(top_k=2))[0].tolist() == [300, 700]


def test_is_greedy_where_nothing_is_drawn() -> None:
    greedy = [SamplingParams(temperature=0.0), SamplingParams(temperature=1e-6), SamplingParams(top_k=1)]
    drawn = [SamplingParams(temperature=1.1e-6), SamplingParams(top_k=0), SamplingParams(top_p=0.0)]
    assert [is_greedy(params) for params in [*greedy, *drawn]] == [True] * 3 + [False] * 3


@pytest.mark.parametrize("params", [SamplingParams(temperature=0.0), SamplingParams(), SamplingParams(top_k=0)])
@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("place", [0, 640, 4299])
def test_unusable_logits_are_an_error(params: SamplingParams, value: float, place: int) -> None:
    logits = make_logits("normal", 4300, 3)
    logits[place] = value
    with pytest.raises(EdgeLLMError, match="best logit is (nan|inf)"):
        sample(logits, params, np.random.default_rng(0))
    with pytest.raises(EdgeLLMError, match="best logit is -inf"):
        sample(np.full(4300, -np.inf, np.float32), params, np.random.default_rng(0))


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(temperature=0.7),
        SamplingParams(temperature=1.5, top_k=0, top_p=0.9, min_p=0.0),
        SamplingParams(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0),
    ],
)
def test_draws_follow_the_distribution(params: SamplingParams) -> None:
    logits = make_logits("normal", 60, 8) * np.float32(0.5)
    ids, probabilities, _ = plain_distribution(logits, params)
    rng = np.random.Generator(np.random.PCG64(7))
    count = 4000
    drawn = np.bincount([sample(logits, params, rng) for _ in range(count)], minlength=60)
    assert drawn[ids].sum() == count
    expected = count * np.array(probabilities)
    large = expected >= 5
    rest = max(count - drawn[np.array(ids)[large]].sum(), 0), count - expected[large].sum()
    chi2 = float((((drawn[ids] - expected) ** 2 / expected)[large]).sum()) + (rest[0] - rest[1]) ** 2 / max(rest[1], 5)
    freedom = int(large.sum())
    assert chi2 < freedom + 4 * math.sqrt(2 * freedom)


def test_a_draw_is_never_an_impossible_index() -> None:
    class Edge:
        def __init__(self, value: float) -> None:
            self.value = value

        def random(self) -> float:
            return self.value

    probabilities = np.array([0.0, 0.1, 0.0, 0.3, 0.6, 0.0])
    drawn = {draw(probabilities, Edge(value)) for value in [0.0, 0.05, 0.1, 0.2, 0.4, 0.9, 1 - 2**-53, 1.0]}  # type: ignore[arg-type]
    assert drawn == {1, 3, 4}


def test_the_default_chain_on_a_large_vocabulary_is_fast() -> None:
    logits = make_logits("normal", 262_144, 1)
    rng = np.random.default_rng(0)
    seconds = min(timeit.repeat(lambda: sample(logits, SamplingParams(), rng), number=10, repeat=5)) / 10
    assert seconds < 3e-3  # measured 0.15 to 0.25 ms; a full sort takes 20 ms
