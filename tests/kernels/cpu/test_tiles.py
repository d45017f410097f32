"""Every format's pack and tile kernels, and the kernel that quantises activations: bits against NumPy, worst cases too."""

from __future__ import annotations

import cpu_kernels as cpu
import expected_products as oracle
import numpy as np
import pytest
from random_weights import make_random

from edgellm.kernels import formats

# Bytes of a group, per format, that hold weights and integer factors; the extremes leave the scales beside them alone.
BODIES = {
    **{name: slice(2, None) for name in ("Q4_0", "Q5_0", "Q8_0", "IQ4_NL", "IQ4_XS")},
    **{name: slice(4, None) for name in ("Q4_1", "Q5_1", "Q4_K", "Q5_K", "NVFP4")},
    **{name: slice(2, None) for name in ("Q1_0", "IQ1_S", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S")},
    "TQ1_0": slice(52),
    "TQ2_0": slice(64),
    "IQ1_M": slice(48),
    "Q2_K": slice(80),
    "Q3_K": slice(108),
    "Q6_K": slice(208),
    "MXFP4": slice(1, None),
}
ENDS = {
    "Q8_0": (0x80, 0x7F),
    "MXFP4": (0x77, 0xFF),
    "NVFP4": (0x77, 0xFF),
}  # what codes of all zeros and all ones are not
REDUNDANT = ("TQ1_0", "NVFP4")  # not every bit means something: 256 bytes for 243 fives, scales with a sign bit


def random_weights(name: str, rows: int, width: int, seed: int = 0) -> np.ndarray:
    return make_random(name, rows, width, 1.0, np.random.default_rng((seed, rows, width)))


def random_rows(rows: int, width: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng((seed, rows, width))
    return (rng.standard_normal((rows, width)) * rng.lognormal(0, 2, (rows, 1))).astype(np.float32)


def assert_same_bits(got: np.ndarray, want: np.ndarray) -> None:
    assert got.shape == want.shape and got.dtype == want.dtype == np.float32
    different = got.view(np.uint32) != want.view(np.uint32)
    assert not different.any(), (np.argwhere(different)[:4], got[different][:4], want[different][:4])


def smallest_width(name: str) -> int:
    return max(formats.get(name).group_size, 32 if name in cpu.INT8_FORMATS else 1)


# ---- quantising activations ----
@pytest.mark.parametrize("level", cpu.LEVEL_NAMES)
@pytest.mark.parametrize("tokens", cpu.TILE_TOKENS)
def test_quantised_rows(level: str, tokens: int) -> None:
    x = random_rows(7, 96)
    x[1, 32:64] = 0  # a group without a scale
    x[2, :32] = 1e-38  # its inverse still exists
    x[3, :32] = 1e-39  # its inverse would be infinite
    x[4] = np.linspace(-127, 127, 96)  # halves: rounded to even
    x[5, ::2], x[5, 1::2] = 3e38, -3e38
    x[6] = -0.0
    got, starts = cpu.read_tiles(cpu.write_tiles(level, x, tokens), len(x), tokens)
    want = oracle.quantised(x)
    assert np.array_equal(got.values, want.values)
    assert_same_bits(got.scales, want.scales)
    assert_same_bits(got.sums + np.float32(0), want.sums + np.float32(0))
    # Steps are four columns; an int16 half of a lane collects two of them over four steps.
    halves = want.values.reshape(len(x), -1, 2, 4, 2, 2).astype(np.int16)
    assert np.array_equal(starts, -halves.sum(axis=(3, 5)))


@pytest.mark.parametrize("level", cpu.LEVEL_NAMES)
@pytest.mark.parametrize("tokens", [2, 4])
def test_rows_of_two_parts(tokens: int, level: str) -> None:
    """The precise mode: what rounding left over becomes a row of its own."""
    x = random_rows(5, 96)
    x[1, 32:64] = 0
    got, _ = cpu.read_tiles(cpu.write_tiles(level, x, tokens, parts=2), 2 * len(x), tokens)
    first = oracle.quantised(x)
    left = oracle.fma(-first.scales[..., None], first.values.astype(np.float32), x.reshape(5, -1, 32)).reshape(5, -1)
    for part, want in enumerate((first, oracle.quantised(left))):
        assert np.array_equal(got.values[part::2], want.values)
        assert_same_bits(got.scales[part::2], want.scales)
    both = (got.values * got.scales[..., None].astype(np.float64)).reshape(5, 2, -1).sum(1)
    assert (np.abs(both - x).reshape(5, -1, 32) <= first.scales[..., None] / 253).all()


@pytest.mark.parametrize("level", cpu.LEVEL_NAMES)
def test_quantising_is_close_to_the_values(level: str) -> None:
    x = random_rows(5, 256)
    got, _ = cpu.read_tiles(cpu.write_tiles(level, x, 1), len(x), 1)
    error = np.abs(got.values * got.scales[..., None] - x.reshape(5, -1, 32))
    assert (error <= got.scales[..., None] * 0.5001).all() and np.abs(got.values).max() == 127


@pytest.mark.parametrize("level", cpu.LEVEL_NAMES)
def test_values_that_are_no_numbers_stay_visible(level: str) -> None:
    weights = random_weights("Q8_0", 8, 64)
    for bad in (np.inf, -np.inf):
        x = random_rows(1, 64)
        x[0, 40] = bad
        assert not np.isfinite(cpu.product(level, "Q8_0", weights, x, 1)).any()
    for lane in (0, 5, 31, 40):
        x = random_rows(1, 64)
        x[0, lane] = np.nan
        assert np.isnan(cpu.product(level, "Q8_0", weights, x, 1)).all()


# ---- rows of a table ----
@pytest.mark.parametrize("level", cpu.LEVEL_NAMES)
@pytest.mark.parametrize("name", cpu.FORMAT_NAMES)
def test_expanding_a_row_is_dequantising_it(level: str, name: str) -> None:
    width = 2 * formats.get(name).group_size * 16
    raw = np.random.default_rng(5).integers(0, 256, random_weights(name, 11, width).shape, dtype=np.uint8)
    got, want = cpu.expand(level, name, raw, width), formats.get(name).dequantize(raw)
    numbers = ~np.isnan(want)  # random scale bits are sometimes none
    assert np.array_equal(np.isnan(got), ~numbers)
    assert_same_bits(got[numbers], want[numbers])


# ---- packing ----
@pytest.mark.parametrize("name", cpu.FORMAT_NAMES)
def test_packing_keeps_every_byte_and_repeats_the_last_row(name: str) -> None:
    width, whole = 2 * formats.get(name).group_size * 16, random_weights(name, 8, 2 * formats.get(name).group_size * 16)
    levels = [cpu.pack(level, name, whole[:3], width) for level in cpu.get_available_levels()]
    assert all(np.array_equal(levels[0], other) for other in levels)
    assert np.array_equal(levels[0], cpu.pack("generic", name, whole[[0, 1, 2, 2, 2, 2, 2, 2]], width))
    dequantize = formats.get(name).dequantize
    # Each bit of a raw row shows up in the packed rows. (Bytes of Q4_K's mins are written with their sign turned.)
    rng = np.random.default_rng(5)
    for byte in {0, whole.shape[1] - 1, *rng.integers(0, whole.shape[1], 30).tolist()}:
        for bit in range(8):
            changed = whole.copy()
            changed[5, byte] ^= 1 << bit
            if name in REDUNDANT and np.array_equal(dequantize(changed[5:6]), dequantize(whole[5:6])):
                continue
            assert not np.array_equal(
                cpu.pack("generic", name, changed, width), cpu.pack("generic", name, whole, width)
            )


# ---- products ----
@pytest.mark.parametrize("level", cpu.LEVEL_NAMES)
@pytest.mark.parametrize("tokens", cpu.WAYS_TO_MULTIPLY)
@pytest.mark.parametrize("name", cpu.FORMAT_NAMES)
def test_random_bytes(name: str, tokens: int, level: str) -> None:
    small = smallest_width(name)
    for rows, width in ((13, small), (17, 3 * small), (5, 512)):
        weights, x = random_weights(name, rows, width), random_rows(6, width)
        got = cpu.product(level, name, weights, x, tokens)
        assert_same_bits(got, oracle.expected_product(name, weights, x))
        exact = x.astype(np.float64) @ formats.get(name).dequantize(weights).astype(np.float64).T
        assert (np.abs(got - exact) <= error_bound(name, weights, x)).all()


def error_bound(name: str, weights: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Half a step of each activation times its weight, plus float32 rounding of the sums."""
    size = np.abs(formats.get(name).dequantize(weights)).astype(np.float64)
    rounding = np.abs(x).astype(np.float64) @ size.T * (x.shape[1] + 16) * 2.0**-24
    if name not in cpu.INT8_FORMATS:
        return rounding
    step = np.repeat(oracle.quantised(x).scales.astype(np.float64), 32, axis=1)
    return 0.501 * step @ size.T + 4 * rounding


@pytest.mark.parametrize("name", cpu.FORMAT_NAMES)
def test_every_number_of_rows(name: str) -> None:
    width = smallest_width(name)
    weights, x = random_weights(name, 17, width), random_rows(2, width)
    want = oracle.expected_product(name, weights, x)
    for rows in range(1, 18):
        for level in cpu.get_available_levels():
            assert_same_bits(cpu.product(level, name, weights[:rows], x, 2), want[:, :rows])


@pytest.mark.parametrize("level", cpu.LEVEL_NAMES)
@pytest.mark.parametrize("tokens", cpu.WAYS_TO_MULTIPLY)
@pytest.mark.parametrize("name", cpu.FORMAT_NAMES)
def test_adding_to_what_is_there(name: str, tokens: int, level: str) -> None:
    width = 2 * smallest_width(name)
    weights, x, before = random_weights(name, 11, width), random_rows(5, width), random_rows(5, 11, 1)
    got = cpu.product(level, name, weights, x, tokens, before)
    assert_same_bits(got, before + oracle.expected_product(name, weights, x))


@pytest.mark.parametrize("level", cpu.LEVEL_NAMES)
@pytest.mark.parametrize("name", cpu.INT8_FORMATS)
def test_zero_groups_give_exact_zeros(name: str, level: str) -> None:
    weights, x = random_weights(name, 9, 512), random_rows(4, 512)
    assert not cpu.product(level, name, np.zeros_like(weights), x, 4).any()
    assert not cpu.product(level, name, weights, np.zeros_like(x), 4).any()
    x[:, 32:480] = 0
    assert_same_bits(cpu.product(level, name, weights, x, 4), oracle.expected_product(name, weights, x))


def extreme_weights(name: str, fill: str) -> np.ndarray:
    """Every weight and integer scale at an end of its range, or at random ends; sane scales."""
    groups = random_weights(name, 16, 512).reshape(-1, formats.get(name).group_bytes)
    low, high = ENDS.get(name, (0, 0xFF))
    rng = np.random.default_rng(3)
    body = groups[:, BODIES[name]]
    ends = {"low": [low], "high": [high], "random": [low, high]}[fill]
    body[:] = rng.choice(np.array(ends, np.uint8), body.shape)
    if name == "Q6_K":
        groups[:, 192:208] = rng.choice(np.array([0x80, 0x7F], np.uint8), (len(groups), 16))
    return groups.reshape(16, -1)


@pytest.mark.parametrize("level", cpu.LEVEL_NAMES)
@pytest.mark.parametrize("name", [n for n in cpu.FORMAT_NAMES if formats.get(n).packed.panels])
def test_many_tokens(name: str, level: str) -> None:
    """The chunk kernel, on packed rows and on raw ones: odd row groups, incomplete ones, several blocks of tokens."""
    for rows in (17, 25, 32):
        weights, x = random_weights(name, rows, 512), random_rows(29, 512)
        want = oracle.expected_product(name, weights, x)
        for is_raw in (False, True):
            assert_same_bits(cpu.many_tokens(level, name, weights, x, is_raw), want)


@pytest.mark.parametrize("level", cpu.LEVEL_NAMES)
@pytest.mark.parametrize("fill", ["low", "high", "random"])
@pytest.mark.parametrize("name", cpu.INT8_FORMATS)
def test_extremes_overflow_nothing(name: str, fill: str, level: str) -> None:
    weights = extreme_weights(name, fill)
    x = np.empty((6, 512), np.float32)
    x[0], x[1], x[2:] = 127, -127, np.random.default_rng(4).choice([-127.0, 127.0], (4, 512))
    x[1, ::32] = 127  # the scale is one whatever the signs: quantising loses nothing
    want = oracle.expected_product(name, weights, x)
    exact = x.astype(np.float64) @ formats.get(name).dequantize(weights).astype(np.float64).T
    size = np.abs(x).astype(np.float64) @ np.abs(formats.get(name).dequantize(weights)).astype(np.float64).T
    assert (np.abs(want - exact) <= 3e-6 * size).all()
    for tokens in cpu.WAYS_TO_MULTIPLY:
        assert_same_bits(cpu.product(level, name, weights, x, tokens), want)


@pytest.mark.parametrize("level", cpu.LEVEL_NAMES)
def test_every_exponent_of_mxfp4(level: str) -> None:
    """Subnormal scales, subnormal sums, the largest scale."""
    weights, x = random_weights("MXFP4", 256, 32), random_rows(5, 32) / np.float32(2**20)
    weights[:, 0] = np.arange(256)
    want = oracle.expected_product("MXFP4", weights, x)
    assert np.isfinite(want).all() and (np.abs(want[:, :3]) < 2.0**-126).all()
    for tokens in cpu.WAYS_TO_MULTIPLY:
        assert_same_bits(cpu.product(level, "MXFP4", weights, x, tokens), want)


# ---- the oracle itself ----
def test_fma_rounds_once() -> None:
    x, y, z = (np.array([v], np.float32) for v in (1 + 2.0**-12, 1 + 2.0**-12, -1))
    assert oracle.fma(x, y, z)[0] == 2.0**-11 + 2.0**-24  # x * y alone would lose the last term
    # Halfway between two float32 in float64, but not exactly: rounding twice would go to even.
    x, y, z = (np.array([v], np.float32) for v in (2.0**-50, 2.0**-50, 1 + 2.0**-23))
    assert oracle.fma(x, y, z)[0] == 1 + 2.0**-23
    z = np.array([1], np.float32)
    x, y = np.array([1 + 2.0**-23], np.float32), np.array([2.0**-24], np.float32)  # 2^-24 + 2^-47: just above half
    assert oracle.fma(x, y, z)[0] == 1 + 2.0**-23 and np.float32(1 + 2.0**-24) == 1
    from fractions import Fraction

    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(200).astype(np.float32) for _ in range(2))
    c = (-a.astype(np.float64) * b * (1 + rng.choice([0, 2.0**-30, 2.0**-24, 1.0], 200))).astype(np.float32)
    for i, got in enumerate(oracle.fma(a, b, c)):
        exact = Fraction(float(a[i])) * Fraction(float(b[i])) + Fraction(float(c[i]))
        near = [np.nextafter(got, np.float32(s)) for s in (-np.inf, np.inf)]
        assert all(abs(Fraction(float(got)) - exact) <= abs(Fraction(float(n)) - exact) for n in near)
