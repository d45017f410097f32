"""Kernels of the cache's float formats, one by one: the bits of their NumPy meaning, and sums in the documented order."""

from __future__ import annotations

import cpu_kernels as cpu
import numpy as np
import pytest

from edgellm.kernels import cache_formats
from edgellm.kernels.cpu.memory import address, aligned

NAMES = ("f16", "bf16", "e4m3", "e5m2")
DIMS = (8, 40, 64, 96, 200)
ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 11, 24)
each_format = pytest.mark.parametrize("name", NAMES)
each_level = pytest.mark.parametrize("level", cpu.LEVEL_NAMES)


def heads(count: int, dim: int, seed: int = 0) -> np.ndarray:
    """Values of any size, and what is special: no number, no end, zeros, ties between two codes, a format's largest."""
    rng = np.random.default_rng((count, dim, seed))
    x = (rng.standard_normal((count, dim)) * 10.0 ** rng.integers(-9, 7, (count, 1))).astype(np.float32)
    special = [
        np.nan,
        -np.nan,
        np.inf,
        -np.inf,
        0,
        -0.0,
        448,
        464,
        -1e9,
        2**-10,
        3 * 2**-10,
        2**-17,
        61440,
        65520,
        3.4e38,
    ]
    x[::3, 0] = rng.choice(np.array(special, np.float32), len(x[::3]))
    return x


def written(name: str, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A K tile and a V tile of f32[64, D] in NumPy."""
    form, dim = cache_formats.get(name), x.shape[1]
    k, v = aligned(form.k_tile_bytes(dim)), aligned(form.v_tile_bytes(dim))
    for slot, row in enumerate(x):
        form.k.write(k, slot, row)
        form.v.write(v, slot, row)
    return k, v


def fma(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
    """float32, rounded once: the product is exact in long double."""
    return (x.astype(np.longdouble) * y + z).astype(np.float32)


@each_format
@each_level
@pytest.mark.parametrize("dim", DIMS)
def test_what_is_stored_are_the_bits_of_numpy(dim: int, level: str, name: str) -> None:
    x = heads(64, dim)
    rows, (k, v) = cpu.make_rows(x, fill=np.nan), written(name, x)
    for part, want in (("store_k", k), ("store_v", v)):
        tile = aligned(want.nbytes)
        tile[:] = 0xFF
        for slot in np.random.default_rng(dim).permutation(64):
            cpu.get_cache_kernel(level, part, name)(address(rows[slot]), address(tile), slot, dim)
        assert np.array_equal(tile, want)


@each_format
@each_level
def test_every_code_is_read_as_numpy_reads_it(level: str, name: str) -> None:
    """A query of one dim is that dim of every token; a weight of one token is its value. No number stays none."""
    form, dim = cache_formats.get(name), 8
    kind = np.uint8 if name.startswith("e") else np.uint16
    codes = np.arange(1 << 8 * np.dtype(kind).itemsize, dtype=np.int64).astype(kind)
    codes = codes[:: len(codes) // 256]
    if name == "e5m2":
        codes = codes[(codes & 0x7F) < 0x7D]  # 0x7C is infinite here, and never written
        codes[(codes & 0x7F) == 0x7C] = 0x7F
    q = np.zeros((1, dim), np.float32)
    q[0, 3] = 1
    for first in range(0, len(codes), 64):
        some = np.resize(codes[first : first + 64], 64)
        k, v = aligned(form.k_tile_bytes(dim)), aligned(form.v_tile_bytes(dim))
        k.view(kind).reshape(2, dim, 32)[:, 3] = some.reshape(2, 32)
        v.view(kind).reshape(64, 32)[:, 3] = some
        got = scores(level, name, k, q, dim)[0]
        assert np.array_equal(got, form.k.read(k, dim)[:, 3], equal_nan=True)
        for slot in range(0, 64, 7):
            weights = np.zeros((1, 64), np.float32)
            weights[0, slot] = 1
            only = v.copy()
            only.view(kind).reshape(64, 32)[np.arange(64) != slot] = 0
            tile = cpu.make_copy(only)
            got = sums(level, name, tile, weights, np.zeros((1, 32), np.float32), np.ones(1, np.float32), dim)
            assert np.array_equal(got[0, 3], form.v.read(v, dim)[slot, 3], equal_nan=True)


def scores(
    level: str, name: str, tile: np.ndarray, q: np.ndarray, dim: int, n: int = 64, shared: int = 1
) -> np.ndarray:
    """q f32[rows, D], made ready and multiplied. -> f32[rows, 64]."""
    rows = len(q)
    source = cpu.make_rows(q.reshape(rows // shared, shared * dim), fill=np.nan)
    made = aligned(rows * cache_formats.get(name).query_bytes(dim) + 128)
    cpu.get_cache_kernel(level, "ready", name)(
        address(source), source.strides[0], cpu.float_word(0.5), shared, dim, rows, address(made)
    )
    out = aligned(rows * 256).view(np.float32).reshape(rows, 64)
    out[:] = np.nan
    cpu.get_cache_kernel(level, "score", name)(address(tile), n, address(made), rows, dim, address(out), address(tile))
    return out[:, :n] * np.float32(2)


def sums(
    level: str, name: str, tile: np.ndarray, weights: np.ndarray, out: np.ndarray, by: np.ndarray, dim: int, n: int = 64
) -> np.ndarray:
    weights, out, by = (cpu.make_copy(a) for a in (weights, out, by))
    cpu.get_cache_kernel(level, "weigh", name)(
        address(tile), n, address(weights), address(by), len(out), dim, address(out), address(tile)
    )
    return out


@each_format
@each_level
@pytest.mark.parametrize("dim", DIMS)
def test_scores_add_dims_in_order(dim: int, level: str, name: str) -> None:
    rng = np.random.default_rng(dim)
    tile, _ = written(name, rng.standard_normal((64, dim)).astype(np.float32))
    keys = cache_formats.get(name).k.read(tile, dim)
    q = rng.standard_normal((24, dim)).astype(np.float32)
    want = np.zeros((24, 64), np.float32)
    for d in range(dim):
        want = fma(q[:, d : d + 1], keys[:, d], want)
    for rows in ROWS:
        shared = 3 if rows % 3 == 0 else 1
        assert np.array_equal(scores(level, name, tile, q[:rows], dim, shared=shared), want[:rows]), rows
    trapped = tile.copy()
    trapped[:] = np.where(np.arange(len(tile)) < len(tile) // 2, tile, 0xFF)  # the tokens from 32 on
    for n in (1, 30, 32):
        assert np.array_equal(scores(level, name, cpu.make_copy(trapped), q, dim, n), want[:, :n])


@each_format
@each_level
@pytest.mark.parametrize("dim", DIMS)
def test_values_are_added_in_order_of_tokens(dim: int, level: str, name: str) -> None:
    rng, padded = np.random.default_rng(dim), -(-dim // 32) * 32
    _, tile = written(name, rng.standard_normal((64, dim)).astype(np.float32))
    values = np.zeros((64, padded), np.float32)
    values[:, :dim] = cache_formats.get(name).v.read(tile, dim)
    weights, before = rng.random((24, 64)).astype(np.float32), rng.standard_normal((24, padded)).astype(np.float32)
    by = rng.random(24).astype(np.float32)
    want = before * by[:, None]
    for t in range(64):
        if t in (33, 63):
            some, trapped = want, tile.copy().reshape(padded // 32, 64, -1)
            trapped[:, t:] = 0xFF  # not there yet: never read
            for rows in ROWS:
                got = sums(level, name, cpu.make_copy(trapped), weights[:rows], before[:rows], by[:rows], dim, t)
                assert np.array_equal(got, some[:rows]), (rows, t)
        want = fma(weights[:, t : t + 1], values[t], want)
    for rows in ROWS:
        assert np.array_equal(sums(level, name, tile, weights[:rows], before[:rows], by[:rows], dim), want[:rows]), rows
    short = weights.copy()
    short[:, 40:] = 0  # out of a row's reach: no bit changes
    assert np.array_equal(
        sums(level, name, tile, short, before, by, dim), sums(level, name, tile, short, before, by, dim, 40)
    )
