"""Filters that leave less to choose from, each in a few lines, by its paper's or llama.cpp's word. Each keeps at least one id.

All take Candidates and change them; an off value changes nothing. Next hop: `candidates.py` does the work on many ids.
"""

from __future__ import annotations

import math

from ..config_sampling import GREEDY_TEMPERATURE
from .candidates import Candidates


def top_k(candidates: Candidates, k: int) -> None:
    """Leave the k likeliest ids (Fan et al. 2018, Hierarchical Neural Story Generation). k <= 0 is off."""
    if k > 0:
        candidates.keep_best(k)


def top_p(candidates: Candidates, p: float) -> None:
    """Leave the fewest likeliest ids with a share p of the probability, the nucleus (Holtzman et al. 2019). p >= 1 is off."""
    if p < 1.0:
        candidates.keep_mass(p)


def min_p(candidates: Candidates, p: float) -> None:
    """Leave ids at least p times as likely as the likeliest (Nguyen et al. 2024). p <= 0 is off."""
    if p > 0.0:
        candidates.keep_depth(math.log(p))


def typical_p(candidates: Candidates, p: float) -> None:
    """Leave the fewest ids with more than a share p of the probability, those of the most typical surprise first.

    Locally typical sampling (Meister et al. 2022): in order of how far -log(probability) is from the entropy. p >= 1 is off.
    """
    if p < 1.0:
        candidates.keep_typical(p)


def top_n_sigma(candidates: Candidates, n: float) -> None:
    """Leave ids whose logit is within n standard deviations of the best (Tang et al. 2024, Top-n sigma). n <= 0 is off."""
    if n > 0.0:
        candidates.keep_depth(-n * candidates.deviation())


def xtc(candidates: Candidates, probability: float, threshold: float, number: float) -> None:
    """Of the ids with a probability of at least `threshold`, leave out all but the last, in `probability` of all cases.

    Exclude top choices (Weidmann 2024, in text-generation-webui and llama.cpp). number: a random one from 0 to 1. Off where
    probability is 0 or threshold above 0.5, which no two ids reach.
    """
    if probability <= 0.0 or threshold > 0.5 or number >= probability:
        return
    depth = math.log(threshold * candidates.total()) if threshold > 0.0 else -math.inf
    candidates.drop_above(depth)


def temperature(candidates: Candidates, degree: float) -> None:
    """Divide the logits by a temperature (Ackley, Hinton and Sejnowski 1985); 0 leaves the best id alone."""
    if degree <= GREEDY_TEMPERATURE:
        candidates.keep_best(1)
    else:
        candidates.temperature *= degree


def dynamic_temperature(candidates: Candidates, degree: float, spread: float, exponent: float) -> None:
    """Let the temperature vary within degree +- spread with the entropy of what is left: the surer, the colder.

    Dynamic temperature (kalomaze 2023, in KoboldCpp and llama.cpp): entropy over its largest possible, to a power.
    """
    low, high = max(0.0, degree - spread), degree + spread
    entropy, count = candidates.entropy()
    if count <= 1:
        return
    share = min(max(entropy / math.log(count), 0.0), 1.0)
    temperature(candidates, low + (high - low) * share**exponent)
