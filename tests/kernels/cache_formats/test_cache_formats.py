"""Formats of cached keys and values in NumPy: sizes, places, rounding, what cannot be kept."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from edgellm.errors import UnsupportedError
from edgellm.kernels import cache_formats
from edgellm.kernels.cache_formats import base, rotation, rounding
from edgellm.kernels.cache_layout import BLOCK_SIZE

NAMES = tuple(cache_formats.FORMATS)
INTEGERS = ("i16", "q8_0", "q4_h")
DIMS = (8, 24, 40, 64, 80, 128, 256)
BYTES_OF_F16 = {"f16": 1.0, "bf16": 1.0, "i16": 1 + 2 / 64, "q8_0": 34 / 64, "q4_h": 18 / 64, "e4m3": 0.5, "e5m2": 0.5}
ERROR = {"f16": 4.9e-4, "bf16": 4e-3, "i16": 1.5e-4, "q8_0": 0.011, "q4_h": 0.17, "e4m3": 0.063, "e5m2": 0.126}
"""Of a normal head, relative to its length, at most."""


def sides(name: str) -> tuple[base.Tiles, base.Tiles]:
    return cache_formats.get(name).k, cache_formats.get(name).v


def through(tiles: base.Tiles, x: np.ndarray, order: np.ndarray | None = None) -> np.ndarray:
    """Up to 64 heads f32[T, D] written into a tile that held rubbish, in an order, and read again."""
    tile = np.random.default_rng(9).integers(0, 256, tiles.tile_bytes(x.shape[1])).astype(np.uint8)
    with np.errstate(all="ignore"):
        for slot in range(len(x)) if order is None else order:
            tiles.write(tile, slot, x[slot])
        return tiles.read(tile, x.shape[1])[: len(x)]


@pytest.mark.parametrize("name", NAMES)
def test_sizes(name: str) -> None:
    form = cache_formats.get(name)
    for dim in DIMS:
        assert form.k_tile_bytes(dim) % 64 == form.v_tile_bytes(dim) % 64 == 0
        form.check(dim)
    for dim in (64, 128, 256):
        more = 64 / dim if name == "i16" else 1.0  # one scale of a head, not of 32 dims
        want = 1 + (BYTES_OF_F16[name] - 1) * more if name == "i16" else BYTES_OF_F16[name]
        assert form.k_tile_bytes(dim) == form.v_tile_bytes(dim) == want * BLOCK_SIZE * dim * 2


@pytest.mark.parametrize("name", NAMES)
def test_heads_come_back(name: str) -> None:
    for dim in DIMS:
        x = np.random.default_rng(dim).standard_normal((BLOCK_SIZE, dim)).astype(np.float32)
        for tiles in sides(name):
            got = through(tiles, x)
            error = np.linalg.norm(got - x, axis=1) / np.linalg.norm(x, axis=1)
            assert error.max() < ERROR[name], dim
            assert np.array_equal(through(tiles, x, np.random.default_rng(0).permutation(BLOCK_SIZE)), got)


@pytest.mark.parametrize("name", NAMES)
def test_zeros_and_ends(name: str) -> None:
    x = np.zeros((6, 40), np.float32)
    x[1, 3], x[2, 3], x[3, 3], x[4, 3], x[5] = np.inf, -np.inf, np.nan, 1e-30, 1e-42
    for tiles in sides(name):
        got = through(tiles, x)
        assert not got[0].any() and np.isfinite(got[[0, 1, 2, 4, 5]]).all()
        assert got[1, 3] > 400 and got[2, 3] == -got[1, 3]
        assert np.isnan(got[3]).any()
        assert np.abs(got[4:]).max() < 1e-6


def test_an_outlier_spoils_no_rotated_head() -> None:
    x = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    x[:, 3] *= 30
    k, v = sides("q8_0")  # keys are rotated, values are not
    assert np.square(through(k, x) - x).mean() < np.square(through(v, x) - x).mean() / 2


@pytest.mark.parametrize("most", [16, 32, 1 << 16])
@pytest.mark.parametrize("dim", DIMS)
def test_rotation(dim: int, most: int) -> None:
    matrix = np.array([rotation.rotate(row, most) for row in np.eye(dim, dtype=np.float32)])
    n = rotation.block(dim, most)
    signs = np.array([[(-1.0) ** bin(i & j).count("1") for j in range(n)] for i in range(n)])
    assert n <= most and np.abs(matrix - np.kron(np.eye(dim // n), signs * n**-0.5)).max() < 1e-6
    x = np.random.default_rng(0).standard_normal(dim).astype(np.float32)
    assert np.allclose(rotation.rotate(rotation.rotate(x, most), most), x, atol=1e-5)


def test_small_floats_are_those_of_ocp() -> None:
    codes = np.arange(256, dtype=np.uint8)
    tile = np.zeros(64 * 8, np.uint8)

    def numbers(name: str) -> np.ndarray:
        out = []
        for code in codes:
            tile[:] = code
            out.append(cache_formats.get(name).k.read(tile, 8)[0, 0])
        return np.array(out)

    # The upper byte of a half is an e5m2; its codes of infinity are kept free and read as no number.
    halves = (codes.astype(np.uint16) << 8).view(np.float16).astype(np.float32)
    finite = np.isfinite(halves)
    assert np.array_equal(numbers("e5m2")[finite], halves[finite]) and np.isnan(numbers("e5m2")[~finite]).all()
    e4m3 = numbers("e4m3")
    assert [e4m3[i] for i in (0, 1, 7, 8, 0x38, 0x7E, 0xFE)] == [0, 2**-9, 7 * 2**-9, 2**-6, 1, 448, -448]
    assert np.isnan(e4m3[[0x7F, 0xFF]]).all() and np.isfinite(np.delete(e4m3, [0x7F, 0xFF])).all()


@pytest.mark.parametrize(("name", "end"), [("e4m3", 0x7E), ("e5m2", 0x7B)])
def test_small_floats_round_to_the_nearest_and_to_even(name: str, end: int) -> None:
    k = cache_formats.get(name).k
    tile = np.zeros(64 * 8, np.uint8)
    read = lambda code: (tile.fill(code), k.read(tile, 8)[0, 0])[1]  # noqa: E731
    numbers = np.array([read(code) for code in range(end + 1)])
    for code, (low, high) in enumerate(itertools.pairwise(numbers)):
        middle, even = np.float32((low + high) / 2), high if code % 2 else low
        some = np.array(
            [low, high, middle, np.nextafter(middle, low), np.nextafter(middle, high), -middle, 0, 0], np.float32
        )
        k.write(tile, 5, some)
        assert np.array_equal(k.read(tile, 8)[5], [low, high, even, low, high, -even, 0, 0]), code


def test_lengths_and_largest() -> None:
    x = np.random.default_rng(0).standard_normal(72).astype(np.float32)
    assert abs(rounding.length(x) / np.linalg.norm(x.astype(np.float64)) - 1) < 1e-6
    x[5] = np.nan
    assert np.isnan(rounding.length(x)) and np.isnan(rounding.largest(x))


def test_no_query_or_key_lets_a_sum_overflow() -> None:
    """Cauchy and Schwarz bound the sum by the lengths of the codes, for any head size and any shape of the head."""
    from edgellm.kernels.cache_formats.i16 import quantise_k

    rng = np.random.default_rng(0)
    for dim in (8, 64, 512, 576):
        for x in (
            rng.standard_normal(dim),
            rng.standard_t(1.2, dim),
            np.ones(dim),
            np.eye(dim)[0],
            1e-21 * np.ones(dim),
        ):
            codes = quantise_k(x.astype(np.float32))[0].astype(np.int64)
            assert (codes**2).sum() < 2**31


def test_what_cannot_be_kept_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedError, match=r"q8_0.*multiples of 8.*have 20"):
        cache_formats.get("q8_0").check(20)
    with pytest.raises(UnsupportedError, match=r"i16.*have 584.*f16"):
        cache_formats.get("i16").check(584)
    cache_formats.get("f16").check(584)
    with pytest.raises(UnsupportedError, match=r"q5_1.*q8_0"):
        cache_formats.get("q5_1")
