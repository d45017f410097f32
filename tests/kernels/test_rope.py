"""Angles of rotary positions: O11's cases stated in NumPy, YaRN against its paper's limits and llama.cpp's float32."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from edgellm.errors import ModelFileError
from edgellm.kernels.ops import Rope
from edgellm.kernels.rope import cos_sin, inverse_frequencies, magnitude

POSITIONS = np.array([0, 1, 100, 5000], np.int64)
PLAIN = Rope(dim=32, base=10000.0, pairs="halves")
YARN = replace(PLAIN, scaling="yarn", factor=4.0, original_context=2048)


def test_plain() -> None:
    want = 10000.0 ** (-np.arange(0, 32, 2) / 32)
    np.testing.assert_allclose(inverse_frequencies(PLAIN), want, rtol=1e-15)
    cos, sin = cos_sin(PLAIN, POSITIONS)
    assert cos.dtype == sin.dtype == np.float32 and cos.shape == sin.shape == (4, 16)
    assert np.array_equal(cos, np.cos(np.outer(POSITIONS, want)).astype(np.float32))
    assert np.array_equal(sin, np.sin(np.outer(POSITIONS, want)).astype(np.float32))


def test_factors_divide_the_frequencies() -> None:
    eights = np.repeat(np.float32([1.0, 8.0]), 8)
    plain, ones = cos_sin(PLAIN, POSITIONS), cos_sin(PLAIN, POSITIONS, np.ones(16, np.float32))
    assert np.array_equal(plain[0], ones[0]) and np.array_equal(plain[1], ones[1])
    got, _ = cos_sin(PLAIN, POSITIONS, eights)
    want = np.cos(np.outer(POSITIONS, 10000.0 ** (-np.arange(16) / 16) / eights))
    assert np.array_equal(got, want.astype(np.float32))
    assert np.array_equal(got[:, :8], plain[0][:, :8]) and not np.allclose(got[3, 8:], plain[0][3, 8:])


def test_linear_position_is_a_quarter() -> None:
    linear = replace(PLAIN, scaling="linear", factor=4.0)
    got = cos_sin(linear, 4 * POSITIONS)
    want = cos_sin(PLAIN, POSITIONS)
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-7)


@pytest.mark.parametrize("value", [0.0, -1.0, float("inf"), float("nan")])
def test_damaged_factors_are_refused(value: float) -> None:
    factors = np.ones(16, np.float32)
    factors[3] = value
    with pytest.raises(ModelFileError, match="rope_freqs.weight"):
        inverse_frequencies(replace(PLAIN, factors="rope_freqs.weight"), factors)


def ggml_rope_yarn(rope: Rope, position: int) -> list[tuple[float, float]]:
    """The loop of ggml's CPU backend, pair by pair."""

    def corner(turns: float) -> float:
        return rope.dim * math.log(rope.original_context / (turns * 2 * math.pi)) / (2 * math.log(rope.base))

    low = max(0.0, math.floor(corner(rope.yarn_beta_fast)))
    high = min(rope.dim - 1.0, math.ceil(corner(rope.yarn_beta_slow)))
    out, theta_extrap, freq_scale = [], float(position), 1 / rope.factor
    for i0 in range(0, rope.dim, 2):
        ramp = 1 - min(1.0, max(0.0, (i0 // 2 - low) / max(0.001, high - low)))
        mix = ramp * rope.yarn_ext_factor
        theta = freq_scale * theta_extrap * (1 - mix) + theta_extrap * mix
        mscale = rope.yarn_attn_factor * (1 + 0.1 * math.log(1 / freq_scale))
        out.append((math.cos(theta) * mscale, math.sin(theta) * mscale))
        theta_extrap *= rope.base ** (-2 / rope.dim)
    return out


@pytest.mark.parametrize("rope", [YARN, replace(YARN, dim=128, base=1e6, original_context=32768, yarn_attn_factor=0.9)])
def test_yarn_is_ggmls(rope: Rope) -> None:
    cos, sin = cos_sin(rope, POSITIONS)
    for row, position in enumerate(POSITIONS):
        np.testing.assert_allclose(np.stack([cos[row], sin[row]], 1), ggml_rope_yarn(rope, int(position)), atol=1e-6)


def test_a_ramp_that_does_not_end_at_whole_pairs() -> None:
    """OpenAI's model of GPT-OSS: pairs of 64 dims, a base of 150000, 4096 tokens stretched 32 times."""
    rope = Rope(64, 150000.0, "halves", "yarn", 32.0, 4096, yarn_truncate=False)
    low, high = (32 * math.log(4096 / (turns * 2 * math.pi)) / math.log(150000.0) for turns in (32.0, 1.0))
    assert (round(low, 2), round(high, 2)) == (8.09, 17.40)
    scaled = np.clip((np.arange(32) - low) / (high - low), 0, 1)
    plain = 150000.0 ** (-np.arange(32) / 32)
    np.testing.assert_allclose(inverse_frequencies(rope), plain * (1 - scaled + scaled / 32), rtol=1e-12)
    assert not np.allclose(inverse_frequencies(replace(rope, yarn_truncate=True)), inverse_frequencies(rope), rtol=1e-3)


def test_yarn_keeps_fast_pairs_and_scales_slow_ones() -> None:
    ratio = inverse_frequencies(YARN) / inverse_frequencies(PLAIN)
    assert ratio[0] == 1.0 and ratio[-1] == 0.25
    assert (np.diff(ratio) <= 0).all() and ((ratio > 0.25) & (ratio < 1)).any()
    assert magnitude(YARN) == 1 + 0.1 * math.log(4) and magnitude(PLAIN) == 1.0


def test_angles_stay_exact_far_out() -> None:
    far = np.array([1 << 20], np.int64)
    cos, _ = cos_sin(PLAIN, far)
    assert cos[0, 0] == np.float32(math.cos(1 << 20))


def test_temperature_grows_by_steps_and_is_that_of_the_true_position() -> None:
    """Llama 4's: 1 + 0.5 log(1 + floor(p / 64))."""
    warm = replace(PLAIN, temperature=0.5, temperature_length=64)
    positions = np.array([0, 63, 64, 200])
    want = np.float32([1.0, 1.0, 1 + 0.5 * math.log(2), 1 + 0.5 * math.log(4)])
    np.testing.assert_allclose(np.hypot(*cos_sin(warm, positions))[:, 3], want, rtol=1e-6)
    cos, sin = cos_sin(warm, positions, last_position=10)
    np.testing.assert_allclose(np.hypot(cos, sin)[:, 3], want, rtol=1e-6)
    np.testing.assert_allclose(np.arctan2(sin, cos)[3], np.arctan2(sin, cos)[2], atol=1e-6)  # turned as at 10
