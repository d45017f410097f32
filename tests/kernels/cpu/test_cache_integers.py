"""Kernels of the cache's integer formats, one by one: the bits of their NumPy meaning and of the documented sums."""

from __future__ import annotations

import re

import cpu_kernels as cpu
import numpy as np
import other_levels
import pytest

from edgellm.kernels import cache_formats
from edgellm.kernels.cache_formats import i16, integers, q4_h, q8_0, rotation, rounding
from edgellm.kernels.cpu.memory import address, aligned

LAYOUTS: dict[str, integers.Layout] = {"i16": i16.LAYOUT, "q8_0": q8_0.LAYOUT, "q4_h": q4_h.LAYOUT}
TURNS = {"i16": (0, 0), "q8_0": q8_0.TURNS, "q4_h": q4_h.TURNS}
DIMS = (8, 24, 40, 64, 80, 96, 128, 256, 512, 576)
each_format = pytest.mark.parametrize("name", LAYOUTS)
each_level = pytest.mark.parametrize("level", cpu.LEVEL_NAMES)


def heads(count: int, dim: int, seed: int = 0) -> np.ndarray:
    """Normal ones, some with outliers, one of zeros, one of tiny values."""
    rng = np.random.default_rng((count, dim, seed))
    x = rng.standard_normal((count, dim)) * rng.choice([0.01, 1, 100], (count, 1))
    x[1::3] *= rng.choice([1, 1, 1, 40], x[1::3].shape)
    if count > 4:
        x[2], x[4] = 0, x[4] * 1e-12
    return x.astype(np.float32)


def stored(level: str, name: str, x: np.ndarray, of_keys: bool) -> np.ndarray:
    """A tile of heads f32[up to 64, D] that held rubbish."""
    form = cache_formats.get(name)
    tile = aligned((form.k if of_keys else form.v).tile_bytes(x.shape[1]))
    tile[:] = 0xFF
    store, rows = cpu.get_cache_kernel(level, "store_k" if of_keys else "store_v", name), cpu.make_rows(x, fill=np.nan)
    for slot in range(len(x)):
        store(address(rows[slot]), address(tile), slot, x.shape[1])
    return tile


def taken_apart(name: str, tile: np.ndarray, dim: int, of_keys: bool) -> tuple[np.ndarray, np.ndarray]:
    """Codes i64[64, D] and scales f32[64, groups] of a tile."""
    layout = LAYOUTS[name]
    codes, scales = np.zeros((64, dim), np.int64), np.zeros((64, len(list(layout.groups(dim)))), np.float32)
    for slot in range(64):
        places = layout.k_places(tile, slot, dim) if of_keys else layout.v_places(tile, slot, dim)
        for g, (first, dims, some, scale) in enumerate(places):
            flat = np.ascontiguousarray(some).reshape(-1)
            codes[slot, first : first + dims] = layout.take(flat, 2 if of_keys else 8)[:dims]
            scales[slot, g] = scale[0]
    return codes, scales


def fma(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
    """float32, rounded once: the product is exact in long double."""
    return (x.astype(np.longdouble) * y + z).astype(np.float32)


@each_format
@each_level
def test_stored_tiles(level: str, name: str) -> None:
    form = cache_formats.get(name)
    for dim in DIMS:
        x = heads(64, dim)
        x[7, 3], x[8, 1], x[9, dim - 1], x[10] = np.inf, -np.inf, np.nan, 1e30
        for of_keys, tiles in ((True, form.k), (False, form.v)):
            want = np.full(tiles.tile_bytes(dim), 0xFF, np.uint8)
            with np.errstate(all="ignore"):
                for slot in range(64):
                    tiles.write(want, slot, x[slot])
            assert np.array_equal(stored(level, name, x, of_keys), want), (dim, of_keys)


@each_format
@each_level
def test_queries_made_ready(level: str, name: str) -> None:
    form, shared = cache_formats.get(name), 3
    for dim in DIMS:
        x, scale = heads(5 * shared, dim), np.float32(dim**-0.5)
        x[6, 2] = np.nan
        rows = cpu.make_rows(x.reshape(5, shared * dim), fill=np.nan)
        out = aligned(len(x) * form.query_bytes(dim)).reshape(len(x), -1)
        cpu.get_cache_kernel(level, "ready", name)(
            address(rows), rows.strides[0], int(scale.view(np.int32)), shared, dim, len(x), address(out)
        )
        for row, got in zip(x * scale, out, strict=True):
            turned = rotation.rotate(row, TURNS[name][0]) if TURNS[name][0] else row
            codes, factor = i16.quantise_k(turned) if name == "i16" else rounding.ready(turned)
            assert np.array_equal(got[: 2 * dim].view(np.int16), codes), dim
            assert np.array_equal(got[2 * dim : 2 * dim + 4].view(np.float32), [factor], equal_nan=True)


def scored(level: str, name: str, tile: np.ndarray, x: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """-> scores f32[rows, 64] of queries x f32[rows, D], and the queries as they were made ready."""
    form, (rows, dim) = cache_formats.get(name), x.shape
    source, out = cpu.make_rows(x), aligned(rows * form.query_bytes(dim)).reshape(rows, -1)
    one = int(np.float32(1).view(np.int32))
    cpu.get_cache_kernel(level, "ready", name)(address(source), source.strides[0], one, 1, dim, rows, address(out))
    scores = cpu.make_copy(np.full((rows, 64), np.nan, np.float32))
    cpu.get_cache_kernel(level, "score", name)(
        address(tile), n, address(out), rows, dim, address(scores), address(tile)
    )
    return scores, out


@each_format
@each_level
def test_scores(level: str, name: str) -> None:
    for dim in DIMS:
        tile, x = stored(level, name, heads(64, dim), True), heads(24, dim, 1)
        got, ready = scored(level, name, tile, x, 64)
        codes, scales = taken_apart(name, tile, dim, True)
        q = ready[:, : 2 * dim].view(np.int16).astype(np.int64)
        factors = np.ascontiguousarray(ready[:, 2 * dim : 2 * dim + 4]).view(np.float32)
        want = np.zeros((24, 64), np.float32)
        for g, (first, dims) in enumerate(LAYOUTS[name].groups(dim)):
            part = slice(first, first + dims)
            sums = q[:, part] @ codes[:, part].T
            assert np.abs(sums).max() < 2**31
            want = fma(sums.astype(np.float32), scales[:, g] * factors, want)
        assert np.array_equal(got, want), dim
        exact = x.astype(np.float64) @ cache_formats.get(name).k.read(tile, dim).astype(np.float64).T
        limit = np.linalg.norm(x, axis=1)[:, None] * np.linalg.norm(cache_formats.get(name).k.read(tile, dim), axis=1)
        assert (np.abs(got - exact) <= 2e-4 * limit + 1e-30).all(), dim
        for n in (1, 16, 17, 63):
            for rows in (1, 2, 3, 4, 5, 7, 8, 9, 11, 13):
                some = scored(level, name, tile, x[-rows:], n)[0]
                assert np.array_equal(some[:, :n], got[-rows:, :n]), (n, rows)


def weighed(
    level: str, name: str, tile: np.ndarray, weights: np.ndarray, sums: np.ndarray, dim: int, n: int
) -> np.ndarray:
    """Sums f32[rows, padded] after the tile; each row had been rescaled by 1 / (its number + 1)."""
    rows = len(weights)
    rescales = cpu.make_copy((1 / np.arange(1, rows + 1)).astype(np.float32))
    w, out = cpu.make_copy(weights), cpu.make_copy(sums)
    arguments = [address(tile), n, address(w), address(rescales), rows, dim, address(out), address(tile)]
    cpu.get_cache_kernel(level, "weigh", name)(*arguments)
    return out[:, :dim]


def expected_sums(name: str, tile: np.ndarray, weights: np.ndarray, sums: np.ndarray, dim: int) -> np.ndarray:
    codes, scales = taken_apart(name, tile, dim, False)
    out = sums * (1 / np.arange(1, len(weights) + 1)).astype(np.float32)[:, None]
    for r, row in enumerate(weights):
        for g, (first, dims) in enumerate(LAYOUTS[name].groups(dim)):
            scaled = np.where(row == 0, np.float32(0), row * scales[:, g])
            if name == "i16":
                lanes = scaled[:32] + scaled[32:]
                while len(lanes) > 1:
                    lanes = lanes[: len(lanes) // 2] + lanes[len(lanes) // 2 :]
                scale = lanes[0] / np.float32(32000)
            else:
                scale = np.abs(scaled).max() / np.float32(32767)
            inverse = np.float32(1) / scale if abs(scale) > rounding.SMALLEST_SCALE else np.float32(0)
            p = np.rint(scaled.astype(np.float64) * inverse).astype(np.int64)
            part = slice(first, first + dims)
            total = p @ codes[:, part]
            assert np.abs(total).max() < 2**31
            out[r, part] = fma(total.astype(np.float32), scale, out[r, part])
    return out[:, :dim]


def make_weights(rows: int, seed: int = 0) -> np.ndarray:
    """Flat ones, sharp ones, one token alone, none."""
    rng = np.random.default_rng((rows, seed))
    weights = rng.random((rows, 64)) ** rng.choice([0, 1, 8, 60], (rows, 1))
    weights[0] = np.eye(64)[5]
    weights[1:2] = 0
    return weights.astype(np.float32)


@each_format
@each_level
def test_weighted_sums(level: str, name: str) -> None:
    for dim in DIMS:
        tile = stored(level, name, heads(64, dim), False)
        weights, padded = make_weights(24), -(-dim // 32) * 32
        sums = np.random.default_rng(1).standard_normal((24, padded)).astype(np.float32)
        want = expected_sums(name, tile, weights, sums, dim)
        assert np.array_equal(weighed(level, name, tile, weights, sums, dim, 64), want), dim
        for rows in (1, 2, 3, 4, 5, 7, 8, 9, 11, 13):
            assert np.array_equal(weighed(level, name, tile, weights[:rows], sums[:rows], dim, 64), want[:rows]), rows


@each_format
@each_level
@pytest.mark.parametrize("dim", [40, 64])
def test_tokens_out_of_reach_change_nothing(level: str, name: str, dim: int) -> None:
    """Unwritten ones and ones that are no numbers, whether or not others in the chunk make the kernel go so far."""
    x, sums = heads(64, dim), np.random.default_rng(1).standard_normal((6, 64)).astype(np.float32)
    for n in (1, 7, 8, 9, 33, 63):
        weights = make_weights(6)
        weights[:, n:] = 0
        clean = np.concatenate([x[:n], np.zeros((64 - n, dim), np.float32)])
        want = weighed(level, name, stored(level, name, clean, False), weights, sums, dim, 64)
        assert np.isfinite(want).all()
        for rest in (x[n:n], np.full((64 - n, dim), np.nan, np.float32), np.full((64 - n, dim), np.inf, np.float32)):
            tile = stored(level, name, np.concatenate([x[:n], rest]), False)
            for end in (n, min(64, n + 1), 64):
                assert np.array_equal(weighed(level, name, tile, weights, sums, dim, end), want), (n, end)


@each_format
@each_level
def test_what_is_no_number_shows(level: str, name: str) -> None:
    x, dim = heads(64, 64), 64
    x[9, 5] = np.nan
    q = heads(2, dim, 1)
    assert np.isnan(scored(level, name, stored(level, name, x, True), q, 64)[0][:, 9]).all()
    zero, weights = np.zeros((2, dim), np.float32), np.ones((2, 64), np.float32)
    assert np.isnan(weighed(level, name, stored(level, name, x, False), weights, zero, dim, 64)).any(axis=1).all()
    tile = stored(level, name, heads(64, 64), False)
    weights[1, 3] = np.nan
    got = weighed(level, name, tile, weights, zero, dim, 64)
    assert np.isfinite(got[0]).all() and np.isnan(got[1]).all()
    q[1, 0] = np.nan
    got = scored(level, name, stored(level, name, heads(64, 64), True), q, 64)[0]
    assert np.isfinite(got[0]).all() and np.isnan(got[1]).all()


@pytest.mark.parametrize(
    ("target", "instruction", "least"),
    [
        ("x86-64-avx2", r"vpmaddwd", 48),
        ("x86-64-avxvnni", r"vpdpwssd", 48),
        ("x86-64-avx512vnni", r"vpdpwssd", 48),
        ("arm64-generic", r"smlal2?\s", 96),
    ],
)
def test_levels_multiply_pairs_as_they_can(target: str, instruction: str, least: int) -> None:
    """Six rows times a stripe in a step: 4 pairs, 2 vectors."""
    code = other_levels.assembly(target, "linux", ["score_i16"])["score_i16"]
    assert len(re.findall(instruction, code)) >= least
    assert not re.findall(r"ymm\d+, -?\d*\(%rsp\)", code), "sums on the stack"
