"""How fast each pair of a head turns: inverse frequencies, linear and YaRN scaling, temperature, tables of cos and sin.

The maths is llama.cpp's (ggml's rope_yarn). Angles are computed in float64 and rounded to float32 once, because an
angle of 100,000 radians has no float32 worth a cosine. Rotates nothing: that is each backend's `rope`.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ..errors import ModelFileError
from .ops import Rope


def inverse_frequencies(rope: Rope, factors: NDArray[np.float32] | None = None) -> NDArray[np.float64]:
    """Radians per position of each pair, f64[dim / 2].

    factors: f32[dim / 2], the values of the weight that rope.factors names (Llama 3.1's rope_freqs.weight).
    """
    pair = np.arange(rope.dim // 2)
    frequency: NDArray[np.float64] = rope.base ** (-2.0 * pair / rope.dim)
    if factors is not None:
        if not (np.isfinite(factors) & (factors > 0)).all():
            raise ModelFileError(
                f"tensor {rope.factors} holds values that are not positive numbers; the file is damaged"
            )
        frequency = frequency / factors.astype(np.float64)
    if rope.scaling == "none":
        return frequency
    if rope.scaling == "linear":
        return frequency / rope.factor
    assert rope.scaling == "yarn", rope.scaling
    kept = _yarn_ramp(rope) * rope.yarn_ext_factor
    return frequency * ((1.0 - kept) / rope.factor + kept)


def _yarn_ramp(rope: Rope) -> NDArray[np.float64]:
    """Per pair 1 where it turns more than beta_fast times in the original context (kept), 0 below beta_slow (scaled).

    Peng et al. 2023, section 3.2; the corners are rounded outwards to whole pairs unless yarn_truncate is off.
    """

    def corner(turns: float) -> float:
        return rope.dim * math.log(rope.original_context / (turns * 2 * math.pi)) / (2 * math.log(rope.base))

    low, high = corner(rope.yarn_beta_fast), corner(rope.yarn_beta_slow)
    if rope.yarn_truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(0.0, low), min(rope.dim - 1.0, high)
    pair = np.arange(rope.dim // 2, dtype=np.float64)
    return 1.0 - np.clip((pair - low) / max(0.001, high - low), 0.0, 1.0)


def magnitude(rope: Rope) -> float:
    """The length that rotated pairs are multiplied by: YaRN's "attention temperature", 1 for most models."""
    if rope.scaling == "yarn" and rope.yarn_ext_factor != 0.0:
        return rope.yarn_attn_factor * (1.0 + 0.1 * math.log(rope.factor))
    return rope.yarn_attn_factor


def cos_sin(
    rope: Rope,
    positions: NDArray[np.int64],
    factors: NDArray[np.float32] | None = None,
    last_position: int | None = None,
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Cosines and sines of positions i64[T], each f32[T, dim / 2], times the magnitude.

    Positions beyond last_position turn as if they were there, but have the temperature of where they are.
    """
    turned = np.asarray(positions if last_position is None else np.minimum(positions, last_position), np.float64)
    angles = turned[:, None] * inverse_frequencies(rope, factors)
    size: float | NDArray[np.float64] = magnitude(rope)
    if rope.temperature != 0.0:
        size = size * (1.0 + rope.temperature * np.log1p(positions // rope.temperature_length))[:, None]
    return (np.cos(angles) * size).astype(np.float32), (np.sin(angles) * size).astype(np.float32)
