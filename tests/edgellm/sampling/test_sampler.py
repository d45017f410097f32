"""The sampler: draws by chi-square, random numbers by position, what is remembered and taken back, order, bias."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import plain_sampling as plain
import pytest

from edgellm.config import SamplingParams
from edgellm.kernels.vocabulary import Vocabulary
from edgellm.sampling import Sampler
from edgellm.sampling.randomness import Randomness

OFF: dict[str, Any] = {"top_k": 0, "top_p": 1.0, "min_p": 0.0}
LOGITS = (np.random.default_rng(8).normal(0, 1.5, 60)).astype(np.float32)


@pytest.mark.parametrize(
    "given",
    [
        {"temperature": 0.7},
        OFF | {"temperature": 1.0},
        OFF | {"temperature": 1.5, "top_p": 0.9},
        OFF | {"temperature": 2.0, "min_p": 0.2},
        OFF | {"typical_p": 0.6},
        OFF | {"top_n_sigma": 1.0},
        OFF | {"dynatemp_range": 0.7},
        OFF | {"repeat_penalty": 1.5, "frequency_penalty": 0.3, "presence_penalty": 0.2},
        OFF | {"dry_multiplier": 1.0, "dry_allowed_length": 1},
        {"samplers": ("temperature", "top_p", "penalties"), "repeat_penalty": 2.0, "temperature": 2.0},
        OFF | {"logit_bias": {3: 2.0, 5: -100.0}},
    ],
)
def test_draws_follow_the_plain_statement(make_vocabulary: Callable[[int], Vocabulary], given: dict[str, Any]) -> None:
    """Each place of an answer draws a number of its own, so one text of 1500 ids is 1500 draws."""
    params, history = SamplingParams(seed=5, **given), [1, 2, 3, 1, 2, 3, 1, 2]
    sampler = Sampler(params)
    sampler.vocabulary = make_vocabulary(60)
    probabilities, _ = plain.run_chain(LOGITS, params, history)
    drawn = [sampler.choose(LOGITS.copy(), history, len(history) - place) for place in range(1500)]
    chi2, freedom = plain.chi_square(drawn, probabilities)
    assert chi2 < freedom + 4 * np.sqrt(2 * freedom)


def test_xtc_happens_as_often_as_it_should() -> None:
    params = SamplingParams(seed=2, temperature=1.0, xtc_probability=0.3, xtc_threshold=0.1, **OFF)
    with_xtc, _ = plain.run_chain(LOGITS, params, chance=0.0)
    without, _ = plain.run_chain(LOGITS, params, chance=1.0)
    mixed = {i: 0.3 * with_xtc.get(i, 0.0) + 0.7 * q for i, q in without.items()}
    sampler = Sampler(params)
    drawn = [sampler.choose(LOGITS.copy(), [0] * place, 0) for place in range(3000)]
    chi2, freedom = plain.chi_square(drawn, mixed)
    assert with_xtc.keys() < without.keys() and chi2 < freedom + 4 * np.sqrt(2 * freedom)


def test_a_number_belongs_to_a_seed_and_a_place() -> None:
    places = [0, 1, 2, 31, 32, 10**6, 2, 33]  # forward and back
    numbers = []
    for seed in (0, 1, 2**64 - 1):
        one = Randomness(seed)
        numbers += [one.uniforms(place) for place in places]
    assert numbers == [Randomness(seed).uniforms(place) for seed in (0, 1, 2**64 - 1) for place in places]
    numbers = [pair for i, pair in enumerate(numbers) if i % len(places) < 6 or i % len(places) == 7]
    flat = [x for pair in numbers for x in pair]
    assert len(set(flat)) == len(flat) and all(0.0 <= x < 1.0 for x in flat)
    seven = Randomness(7)
    many = np.array([seven.uniforms(place)[0] for place in range(4000)])
    assert abs(many.mean() - 0.5) < 0.02 and abs(many.var() - 1 / 12) < 0.005


def test_what_came_before_changes_no_draw() -> None:
    """Forced ids and other prompts in front move nothing: the place in the answer counts."""
    params = SamplingParams(seed=3)
    whole = Sampler(params)
    ids = [4, 5]
    for _ in range(9):
        ids.append(whole.choose(LOGITS.copy(), ids, 2))
        whole.accept(ids[-1])
    assert Sampler(params).choose(LOGITS.copy(), [9, 9, 9, *ids[2:8]], 3) == ids[8]


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"mirostat": 2},
        {"repeat_penalty": 1.4, "repeat_last_n": 3},
        {"repeat_penalty": 1.4, "frequency_penalty": 0.5, "repeat_last_n": -1},
        {"dry_multiplier": 2.0},
    ],
)
def test_what_is_taken_back_leaves_no_trace(given: dict[str, Any]) -> None:
    params = SamplingParams(seed=3, temperature=1.0, **given)

    def go_on(sampler: Sampler, ids: list[int], count: int) -> list[int]:
        for _ in range(count):
            ids.append(sampler.choose(LOGITS.copy(), ids, 2))
            sampler.accept(ids[-1])
        return ids

    straight = go_on(Sampler(params), [4, 5], 30)
    sampler = Sampler(params)
    ids = go_on(sampler, [4, 5], 10)
    for num_back in (1, 4, 7):
        for wrong in range(num_back):  # ids that were forced there, and must go
            ids.append(wrong)
            sampler.accept(wrong)
        sampler.choose(LOGITS.copy(), ids, 2)
        del ids[-num_back:]
        sampler.take_back(len(ids), num_back)
    assert go_on(sampler, ids, 20) == straight


def test_no_seed_draws_one() -> None:
    answers = [
        tuple(Sampler(SamplingParams(temperature=5.0, **OFF)).choose(LOGITS.copy(), [0] * i, 0) for i in range(9))
        for _ in range(4)
    ]
    assert len(set(answers)) > 1


def test_the_order_is_the_given_one_and_what_is_left_out_is_off() -> None:
    hot = SamplingParams(temperature=3.0, top_k=0, min_p=0.0, top_p=0.8)
    first = Sampler(SamplingParams(samplers=("temperature", "top_p"), temperature=3.0, top_p=0.8))
    assert len(first.distribution(LOGITS.copy(), [], 0)[0]) > len(Sampler(hot).distribution(LOGITS.copy(), [], 0)[0])
    nothing = Sampler(SamplingParams(samplers=(), temperature=0.0, top_k=1))
    assert len(nothing.distribution(LOGITS.copy(), [], 0)[0]) == 60


def test_mirostat_keeps_the_surprise_near_its_target() -> None:
    logits = (np.random.default_rng(1).normal(0, 2.0, 5000)).astype(np.float32)
    for tau in (3.0, 6.0):
        sampler, surprises = Sampler(SamplingParams(seed=1, temperature=1.0, mirostat=2, mirostat_tau=tau)), []
        for place in range(400):
            ids, probabilities = sampler.distribution(logits.copy(), [0] * place, 0)
            token_id = sampler.choose(logits.copy(), [0] * place, 0)
            sampler.accept(token_id)
            surprises.append(-np.log2(probabilities[ids == token_id][0]))
        assert abs(np.mean(surprises[100:]) - tau) < 0.7


def test_greedy_stays_greedy_whatever_keeps_the_best() -> None:
    best = int(np.argmax(LOGITS))
    assert Sampler(SamplingParams(temperature=0.0)).choose(LOGITS.copy(), [], 0) == best
    xtc = SamplingParams(temperature=0.0, xtc_probability=1.0, xtc_threshold=0.05, seed=1)
    assert Sampler(xtc).choose(LOGITS.copy(), [], 0) != best, "what XTC leaves out is not the best any more"
