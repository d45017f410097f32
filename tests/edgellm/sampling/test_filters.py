"""Each filter and the whole chain against plain statements: what is kept, probabilities, ties, extremes. Cases O19."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable

import numpy as np
import plain_sampling as plain
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from edgellm.config import SamplingParams
from edgellm.config_sampling import SAMPLERS
from edgellm.errors import EdgeLLMError
from edgellm.kernels.vocabulary import Vocabulary
from edgellm.sampling import Sampler
from edgellm.sampling.randomness import Randomness

MakeVocabulary = Callable[[int], Vocabulary]
OFF = {"top_k": 0, "top_p": 1.0, "min_p": 0.0}


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


def sampler_of(params: SamplingParams, vocabulary: Vocabulary) -> Sampler:
    sampler = Sampler(params)
    sampler.vocabulary = vocabulary
    return sampler


def check(logits: NDArray[np.float32], params: SamplingParams, vocabulary: Vocabulary) -> None:
    """The distribution at the first position equals the plain one."""
    history = [int(i) for i in np.random.default_rng(len(logits)).integers(0, min(len(logits), 6), 30)]
    params = dataclasses.replace(params, seed=params.seed or 0)
    chance = Randomness(params.seed or 0).uniforms(0)[1]
    expected, nearness = plain.run_chain(logits, params, history, chance)
    ids, probabilities = sampler_of(params, vocabulary).distribution(logits.copy(), history, len(history))
    if nearness < 1e-5:  # within rounding of float32 a cut may fall on either side
        return
    expected = {i: q for i, q in expected.items() if q > 1e-36}
    found = {int(i): float(q) for i, q in zip(ids, probabilities, strict=True) if q > 1e-36}
    assert found.keys() == expected.keys()
    assert sorted(found.values(), reverse=True) == list(found.values())  # the likeliest in front
    np.testing.assert_allclose([found[i] for i in expected], list(expected.values()), rtol=2e-5, atol=1e-12)


FIELDS = {
    "top_k": st.sampled_from([0, -1, 2, 5, 40, 77, 1500, 10**9]),
    "top_p": st.sampled_from([0.0, 0.1, 0.5, 0.95, 0.999, 1.0]),
    "min_p": st.sampled_from([0.0, 0.001, 0.05, 0.5, 1.0]),
    "typical_p": st.sampled_from([0.0, 0.2, 0.9, 1.0]),
    "top_n_sigma": st.sampled_from([-1.0, 0.5, 1.0, 3.0]),
    "xtc_probability": st.sampled_from([0.0, 0.5, 1.0]),
    "xtc_threshold": st.sampled_from([0.0, 0.001, 0.1, 0.4, 0.6]),
    "dynatemp_range": st.sampled_from([0.0, 0.5]),
    "dynatemp_exponent": st.sampled_from([1.0, 2.5]),
    "repeat_penalty": st.sampled_from([1.0, 1.3]),
    "frequency_penalty": st.sampled_from([0.0, 0.2]),
    "presence_penalty": st.sampled_from([0.0, -0.4]),
    "repeat_last_n": st.sampled_from([-1, 0, 7]),
    "dry_multiplier": st.sampled_from([0.0, 0.8]),
    "temperature": st.sampled_from([0.0, 0.1, 0.8, 1.0, 3.0]),
    "seed": st.integers(0, 9),
}
EVERYTHING_OFF = {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "temperature": 1.0}
SIZES = st.sampled_from([1, 2, 31, 32, 33, 300, 2049, 5000])
slow = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@settings(slow, max_examples=80)
@given(st.sampled_from(KINDS), SIZES, st.integers(0, 2**32), st.data())
def test_a_filter_alone_equals_its_plain_statement(
    make_vocabulary: MakeVocabulary, kind: str, size: int, seed: int, data: st.DataObject
) -> None:
    name = data.draw(st.sampled_from(sorted(FIELDS)))
    more = [n for n in FIELDS if n.split("_")[0] == name.split("_")[0]] + ["temperature"]
    given_values = EVERYTHING_OFF | {n: data.draw(FIELDS[n], label=n) for n in more}
    check(make_logits(kind, size, seed), SamplingParams(**given_values), make_vocabulary(size))


@settings(slow, max_examples=80)
@given(st.sampled_from(KINDS), SIZES, st.integers(0, 2**32), st.fixed_dictionaries({}, optional=FIELDS), st.data())
def test_any_chain_in_any_order_equals_its_plain_statement(
    make_vocabulary: MakeVocabulary, kind: str, size: int, seed: int, fields: dict[str, float], data: st.DataObject
) -> None:
    order = data.draw(st.just(SAMPLERS) | st.permutations(SAMPLERS).map(tuple))
    samplers = order[: data.draw(st.integers(0, len(order)))]
    check(make_logits(kind, size, seed), SamplingParams(samplers=samplers, **fields), make_vocabulary(size))  # type: ignore[arg-type]


@pytest.mark.parametrize("params", [OFF, OFF | {"top_p": 0.95}, OFF | {"min_p": 1e-4}, OFF | {"top_n_sigma": 4.0}, {}])
@pytest.mark.parametrize("kind", ["flat", "normal", "ties", "masked"])
def test_a_large_vocabulary(make_vocabulary: MakeVocabulary, kind: str, params: dict[str, float]) -> None:
    """Where thousands are kept, others are forbidden in place, and only those near the cut are sorted."""
    size = 50_001
    check(make_logits(kind, size, 4), SamplingParams(**params), make_vocabulary(size))  # type: ignore[arg-type]


EXTREMES = list(
    itertools.product([0, -1, 1, 10**9, 40], [0.0, 1.0, 0.5], [0.0, 1.0, 0.05], [0.0, 1e-9, 2e-6, 1e9, 1e300])
)


@pytest.mark.parametrize("kind", [*KINDS, "huge", "one"])
def test_o19_extremes_always_give_an_id_and_no_warning(make_vocabulary: MakeVocabulary, kind: str) -> None:
    if kind == "huge":
        logits = np.linspace(-3.4e38, 3.4e38, 4200, dtype=np.float32)
    elif kind == "one":
        logits = np.full(4200, -np.inf, np.float32)
        logits[4199] = -5.0
    else:
        logits = make_logits(kind, 4200, 5)
    allowed, best = np.flatnonzero(logits > -np.inf), int(np.argmax(logits))
    vocabulary = make_vocabulary(4200)
    with np.errstate(all="warn", under="ignore"):
        for top_k, top_p, min_p, temperature in EXTREMES:
            params = SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, seed=1)
            token_id = sampler_of(params, vocabulary).choose(logits.copy(), [1], 1)
            assert token_id in allowed
            if temperature <= 1e-6 or top_k == 1 or top_p == 0.0:
                assert token_id == best
            if min_p == 1.0:
                assert logits[token_id] == logits.max()


def test_o19_off_values_keep_everything(make_vocabulary: MakeVocabulary) -> None:
    logits = make_logits("normal", 500, 1)
    for top_k in (0, -1, 500, 10**9):
        params = SamplingParams(top_k=top_k, top_p=1.0, min_p=0.0, temperature=1.0)
        ids, _ = sampler_of(params, make_vocabulary(500)).distribution(logits.copy(), [], 0)
        assert sorted(ids.tolist()) == list(range(500))


def test_o19_the_lowest_id_wins_a_tie(make_vocabulary: MakeVocabulary) -> None:
    logits = np.zeros(1000, np.float32)
    logits[[700, 300, 900]] = 5.0
    for params in (SamplingParams(temperature=0.0), SamplingParams(top_k=1, temperature=5.0, seed=1)):
        assert sampler_of(params, make_vocabulary(1000)).choose(logits.copy(), [], 0) == 300
    two = sampler_of(SamplingParams(top_k=2), make_vocabulary(1000))
    assert two.distribution(logits.copy(), [], 0)[0].tolist() == [300, 700]


@pytest.mark.parametrize("params", [SamplingParams(temperature=0.0), SamplingParams(), SamplingParams(**OFF)])  # type: ignore[arg-type]
@pytest.mark.parametrize("value", [math.nan, -math.nan, math.inf])
@pytest.mark.parametrize("place", [0, 640, 4299])
def test_unusable_logits_are_an_error(
    make_vocabulary: MakeVocabulary, params: SamplingParams, value: float, place: int
) -> None:
    logits = make_logits("normal", 4300, 3)
    logits[place] = value
    with pytest.raises(EdgeLLMError, match="best logit is nan or inf"):
        sampler_of(params, make_vocabulary(4300)).choose(logits, [], 0)
    with pytest.raises(EdgeLLMError, match="best logit is -inf"):
        sampler_of(params, make_vocabulary(4300)).choose(np.full(4300, -np.inf, np.float32), [], 0)
