"""Every sampler as its paper or llama.cpp states it: plain float64 on sorted lists, no care for speed.

A state is {id: logit}. `nearness` in a result tells how near to a cut the decision was: within rounding, either side is right.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from edgellm.config import SamplingParams

State = dict[int, float]


class Nearness:
    """The smallest distance to a cut so far."""

    def __init__(self) -> None:
        self.least = 1.0

    def see(self, distances: Sequence[float]) -> None:
        self.least = min([self.least, *distances])


def softmax(state: State) -> dict[int, float]:
    top = max(state.values())
    weights = {i: math.exp(x - top) for i, x in state.items()}
    total = math.fsum(weights.values())
    return {i: w / total for i, w in weights.items()}


def best_first(state: State) -> list[int]:
    return sorted(state, key=lambda i: (-state[i], i))


def only(state: State, ids: Sequence[int]) -> State:
    return {i: state[i] for i in sorted(ids)}


def top_k(state: State, k: int) -> State:
    return only(state, best_first(state)[:k]) if k > 0 else state


def top_p(state: State, p: float, near: Nearness) -> State:
    if p >= 1.0:
        return state
    order, probabilities = best_first(state), softmax(state)
    sums = list(itertools.accumulate(probabilities[i] for i in order))
    near.see([abs(s - p) for s in sums])
    count = next((n + 1 for n, s in enumerate(sums) if s >= p), len(order))
    return only(state, order[:count])


def min_p(state: State, p: float, near: Nearness) -> State:
    if p <= 0.0:
        return state
    top = max(state.values())
    bound = top + math.log(p)
    near.see([abs(x - bound) for x in state.values() if x != top])
    return only(state, [i for i, x in state.items() if x >= bound])


def typical_p(state: State, p: float, near: Nearness) -> State:
    if p >= 1.0:
        return state
    probabilities = softmax(state)
    entropy = -math.fsum(q * math.log(q) for q in probabilities.values() if q > 0.0)
    far = {i: abs(-math.log(q) - entropy) if q > 0.0 else math.inf for i, q in probabilities.items()}
    order = sorted(state, key=lambda i: (far[i], i))
    near.see([abs(far[a] - far[b]) for a, b in itertools.pairwise(order) if state[a] != state[b] and far[b] < math.inf])
    sums = list(itertools.accumulate(probabilities[i] for i in order))
    near.see([abs(s - p) for s in sums])
    count = next((n + 1 for n, s in enumerate(sums) if s > p), len(order))
    return only(state, order[:count])


def top_n_sigma(state: State, n: float, near: Nearness) -> State:
    if n <= 0.0:
        return state
    top = max(state.values())
    bound = top - n * float(np.std(list(state.values())))
    near.see([abs(x - bound) for x in state.values() if x != top])
    return only(state, [i for i, x in state.items() if x >= bound])


def xtc(state: State, probability: float, threshold: float, chance: float, near: Nearness) -> State:
    if chance >= probability or threshold > 0.5:
        return state
    probabilities = softmax(state)
    near.see([abs(q - threshold) for q in probabilities.values()])
    above = [i for i in best_first(state) if probabilities[i] >= threshold]
    left_out = set(above[:-1])
    return only(state, [i for i in state if i not in left_out])


def temperature(state: State, degree: float) -> State:
    if degree <= 1e-6:
        return only(state, best_first(state)[:1])
    return {i: x / degree for i, x in state.items()}


def dynamic_temperature(state: State, degree: float, spread: float, exponent: float) -> State:
    if len(state) < 2:
        return state
    entropy = -math.fsum(q * math.log(q) for q in softmax(state).values() if q > 0.0)
    low, high = max(0.0, degree - spread), degree + spread
    share = min(max(entropy / math.log(len(state)), 0.0), 1.0)
    return temperature(state, low + (high - low) * share**exponent)


def penalties(state: State, params: SamplingParams, token_ids: Sequence[int]) -> State:
    window = token_ids if params.repeat_last_n < 0 else token_ids[max(0, len(token_ids) - params.repeat_last_n) :]
    changed = dict(state)
    for i, count in Counter(window).items():
        if i in changed:
            x = changed[i]
            x = x / params.repeat_penalty if x > 0.0 else x * params.repeat_penalty
            changed[i] = x - params.presence_penalty - count * params.frequency_penalty
    return changed


def dry(state: State, params: SamplingParams, token_ids: Sequence[int], breaks: frozenset[int] = frozenset()) -> State:
    """breaks: ids that end a repetition."""
    n = len(token_ids)
    start = 0 if params.dry_last_n < 0 else max(0, n - params.dry_last_n)
    longest: dict[int, int] = {}
    for place in range(start, n):
        length = 0
        while place - length > start and token_ids[place - 1 - length] == token_ids[n - 1 - length]:
            if token_ids[n - 1 - length] in breaks:
                break
            length += 1
        if length >= params.dry_allowed_length:
            longest[token_ids[place]] = max(longest.get(token_ids[place], 0), length)
    lower = {i: params.dry_multiplier * params.dry_base ** (m - params.dry_allowed_length) for i, m in longest.items()}
    return {i: x - lower.get(i, 0.0) for i, x in state.items()}


def run_chain(
    logits: NDArray[np.float32],
    params: SamplingParams,
    token_ids: Sequence[int] = (),
    chance: float = 1.0,
) -> tuple[dict[int, float], float]:
    """Run the samplers of params in order. -> probabilities by id, nearness. No mirostat, no breakers."""
    near, bias = Nearness(), params.logit_bias
    state = {i: float(x) + bias.get(i, 0.0) for i, x in enumerate(logits) if x > -np.inf and bias.get(i, 0.0) > -100.0}
    for name in params.samplers:
        state = _run(name, state, params, token_ids, chance, near)
    return softmax(state), near.least


def _run(name: str, state: State, params: SamplingParams, ids: Sequence[int], chance: float, near: Nearness) -> State:
    if name == "penalties":
        return penalties(state, params, ids)
    if name == "dry":
        return dry(state, params, ids) if params.dry_multiplier > 0 else state
    if name == "temperature" and params.dynatemp_range > 0.0:
        return dynamic_temperature(state, params.temperature, params.dynatemp_range, params.dynatemp_exponent)
    return {
        "top_k": lambda: top_k(state, params.top_k),
        "top_p": lambda: top_p(state, params.top_p, near),
        "min_p": lambda: min_p(state, params.min_p, near),
        "typical_p": lambda: typical_p(state, params.typical_p, near),
        "top_n_sigma": lambda: top_n_sigma(state, params.top_n_sigma, near),
        "xtc": lambda: xtc(state, params.xtc_probability, params.xtc_threshold, chance, near),
        "temperature": lambda: temperature(state, params.temperature),
    }[name]()


def chi_square(drawn: Sequence[int], probabilities: Mapping[int, float]) -> tuple[float, int]:
    """Return chi-square of drawn ids against probabilities and its degrees of freedom; rare ids count together.

    Raises AssertionError for an id that has no probability.
    """
    counts = Counter(drawn)
    impossible = [i for i in counts if probabilities.get(i, 0.0) <= 0.0]
    assert not impossible, f"ids {impossible[:5]} were drawn and cannot be"
    expected = {i: q * len(drawn) for i, q in probabilities.items()}
    common = [i for i, e in expected.items() if e >= 5.0]
    chi2 = sum((counts[i] - expected[i]) ** 2 / expected[i] for i in common)
    rest = len(drawn) - sum(counts[i] for i in common), len(drawn) - sum(expected[i] for i in common)
    return chi2 + (rest[0] - rest[1]) ** 2 / max(rest[1], 5.0), len(common)
