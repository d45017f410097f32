"""Kernels on rows against reference.py: norms, products, rope, sums, copies; exp and half precision against NumPy."""

from __future__ import annotations

from collections.abc import Sequence

import cpu_kernels as cpu
import expected_products as oracle
import numpy as np
import pytest

from edgellm.kernels import reference
from edgellm.kernels.cpu import cache_kernels, slots
from edgellm.kernels.cpu.memory import address, aligned, aligned_f32
from edgellm.kernels.cpu.rope_table import RopeTable
from edgellm.kernels.ops import Rope
from edgellm.kernels.rope import cos_sin

SENTINEL = np.float32(-12345.0)
levels = pytest.mark.parametrize("level", cpu.LEVEL_NAMES)


def floats(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(np.float32)


def shuffled(count: int) -> list[int]:
    return np.random.default_rng(count).permutation(count).tolist()


# ---- norm ----
def run_norm(level: str, x: np.ndarray, weight: np.ndarray, parts: int, how: int, out: np.ndarray, stride: int) -> None:
    rows, weight = cpu.make_rows(x, fill=SENTINEL), aligned_f32(weight)
    width = x.shape[1] // parts
    arguments = [address(rows), rows.strides[0], address(weight), cpu.float_word(1e-5), parts, width]
    arguments += [address(out), stride, how, 2, 1]
    cpu.call(level, "norm", arguments, shuffled(len(x) * parts))


@levels
@pytest.mark.parametrize("how", [slots.STORE, slots.ADD])
@pytest.mark.parametrize("width", [8, 12, 32, 40, 48, 64, 96, 256, 576])
@pytest.mark.parametrize("parts", [1, 3])
def test_norm(parts: int, width: int, how: int, level: str) -> None:
    x, weight, before = floats(5, parts * width) * 3, floats(width, seed=1), floats(5, parts * width, seed=2)
    x[0], x[1] = 0, x[1] * np.float32(1e-3)  # where epsilon counts
    out = cpu.make_rows(before, fill=SENTINEL)
    run_norm(level, x, weight, parts, how, out, out.strides[0])
    want = reference.rms_norm(x, weight, 1e-5, parts) + (before if how == slots.ADD else 0)
    np.testing.assert_allclose(out[:, : parts * width], want, rtol=3e-6, atol=1e-6)
    if width % 32:  # what lies behind a row's last part is not touched
        assert (out[:, parts * width :] == SENTINEL).all()


@levels
@pytest.mark.parametrize("width", [32, 64, 96, 256, 576])
def test_norm_quantises(width: int, level: str) -> None:
    x, weight = floats(5, width) * 3, floats(width, seed=1)
    plain = cpu.make_rows(np.zeros_like(x))
    run_norm(level, x, weight, 1, slots.STORE, plain, plain.strides[0])
    tiles = aligned(3 * width // 32 * 96).reshape(3, width // 32, 96)
    run_norm(level, x, weight, 1, slots.QUANTISE, tiles, width // 32)
    got, _ = cpu.read_tiles(tiles, 5, 2)
    want = oracle.quantised(plain[:, :width])
    assert all(np.array_equal(getattr(got, f), getattr(want, f)) for f in ("values", "scales", "sums"))


def test_norm_has_the_same_bits_on_every_level() -> None:
    results = []
    for level in cpu.get_available_levels():
        x, out = floats(3, 200), cpu.make_rows(np.zeros((3, 200), np.float32))
        run_norm(level, x, floats(200, seed=1), 1, slots.STORE, out, out.strides[0])
        results.append(out.tobytes())
    assert len(set(results)) == 1


# ---- layer norm ----
def run_layer_norm(
    level: str, x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None, parts: int, out: np.ndarray, *how: int
) -> None:
    """weight, bias: f32[W / parts] or f32[parts, W / parts]. how: bytes of a row of out, STORE ..."""
    rows, weight, width = cpu.make_rows(x, fill=SENTINEL), aligned_f32(weight), x.shape[1] // parts
    bias = None if bias is None else aligned_f32(bias)
    apart = 4 * width if weight.size > width else 0
    arguments = [address(rows), rows.strides[0], address(weight), cpu.float_word(1e-5), parts, width]
    arguments += [0 if bias is None else address(bias), apart, address(out), *how, 2, 1]
    cpu.call(level, "layer_norm", arguments, shuffled(len(x) * parts))


@levels
@pytest.mark.parametrize("how", [slots.STORE, slots.ADD])
@pytest.mark.parametrize("width", [8, 12, 40, 64, 576])
@pytest.mark.parametrize(("parts", "own"), [(1, False), (3, False), (3, True)])
def test_layer_norm(parts: int, own: bool, width: int, how: int, level: str) -> None:
    x, before = floats(5, parts * width) * 3 + 1, floats(5, parts * width, seed=2)
    x[0], x[1] = 7, x[1] * np.float32(1e-3)  # where epsilon counts
    weight = floats(parts, width, seed=1) if own else floats(width, seed=1)
    for bias in (None, np.roll(weight, 1)):
        out = cpu.make_rows(before, fill=SENTINEL)
        run_layer_norm(level, x, weight, bias, parts, out, out.strides[0], how)
        want = reference.layer_norm(x, weight, bias, 1e-5, parts) + (before if how == slots.ADD else 0)
        np.testing.assert_allclose(out[:, : parts * width], want, rtol=3e-6, atol=3e-6)
        if width % 32:
            assert (out[:, parts * width :] == SENTINEL).all()


@levels
def test_layer_norm_quantises(level: str) -> None:
    x, weight, bias = floats(5, 96) * 3, floats(96, seed=1), floats(96, seed=2)
    plain = cpu.make_rows(np.zeros_like(x))
    run_layer_norm(level, x, weight, bias, 1, plain, plain.strides[0], slots.STORE)
    tiles = aligned(3 * 3 * 96).reshape(3, 3, 96)
    run_layer_norm(level, x, weight, bias, 1, tiles, 3, slots.QUANTISE)
    got, want = cpu.read_tiles(tiles, 5, 2)[0], oracle.quantised(plain[:, :96])
    assert all(np.array_equal(getattr(got, f), getattr(want, f)) for f in ("values", "scales", "sums"))


def test_layer_norm_has_the_same_bits_on_every_level() -> None:
    results = set()
    for level in cpu.get_available_levels():
        out = cpu.make_rows(np.zeros((3, 200), np.float32))
        weight = floats(200, seed=1)
        run_layer_norm(level, floats(3, 200), weight, weight, 1, out, out.strides[0], slots.STORE)
        results.add(out.tobytes())
    assert len(results) == 1


# ---- products with a number, and columns ----
@levels
@pytest.mark.parametrize("how", [slots.STORE, slots.ADD])
@pytest.mark.parametrize("width", [1, 8, 70, 160])
def test_scale(width: int, how: int, level: str) -> None:
    x, before, numbers = floats(4, width), floats(4, width, seed=1), floats(4, 1, seed=2)
    rows, by, groups = cpu.make_rows(x), cpu.make_rows(numbers), -(-width // 32)
    for y, factor, want in (([0, 0], 0.3, x * np.float32(0.3)), ([address(by), by.strides[0]], 9.0, x * numbers)):
        out = cpu.make_rows(before)
        arguments = [address(rows), rows.strides[0], *y, cpu.float_word(factor), groups, 2]
        arguments += [address(out), out.strides[0], how, 1, 1]
        cpu.call(level, "scale", arguments, shuffled(4 * -(-groups // 2)))
        assert np.array_equal(out[:, :width], want + before if how == slots.ADD else want)


@levels
@pytest.mark.parametrize(("start", "width"), [(0, 8), (8, 64), (40, 24), (64, 8)])
def test_columns(start: int, width: int, level: str) -> None:
    x, out, groups = cpu.make_rows(floats(4, 72)), cpu.make_rows(np.zeros((4, width), np.float32)), -(-width // 32)
    arguments = [address(x) + 4 * start, x.strides[0], 0, 0, cpu.float_word(1), groups, groups]
    cpu.call(level, "scale", [*arguments, address(out), out.strides[0], slots.STORE, 1, 1], shuffled(4))
    assert np.array_equal(out[:, :width], x[:, start : start + width])


# ---- rope ----
@levels
@pytest.mark.parametrize("pairs", ["adjacent", "halves"])
@pytest.mark.parametrize(
    ("dim", "head_dim"),
    [(8, 8), (10, 12), (6, 16), (16, 16), (32, 64), (40, 40), (50, 64), (80, 80), (128, 128), (256, 256)],
)
@pytest.mark.parametrize("in_place", [True, False])
def test_rope(in_place: bool, dim: int, head_dim: int, pairs: str, level: str) -> None:
    rope = Rope(dim=dim, base=1e4, pairs=pairs, scaling="linear", factor=2.0)
    positions = np.array([0, 1, 63, 64, 130, 130, 7], np.int64)
    factors = np.linspace(1, 8, dim // 2, dtype=np.float32)
    table = RopeTable(rope, factors, rows=len(positions))
    table.take(positions)
    x = floats(len(positions), 3 * head_dim)
    rows = source = cpu.make_rows(x, fill=SENTINEL)
    if not in_place:
        rows = cpu.make_rows(np.full_like(x, SENTINEL), fill=SENTINEL)
    arguments = [address(source), rows.strides[0], 3, head_dim, dim, address(table.values), int(pairs == "halves")]
    cpu.call(level, "rope", [*arguments, address(rows)], shuffled(len(x)))
    if not in_place:
        assert np.array_equal(source[:, : 3 * head_dim], x), "another op reads it too"
    want = reference.rope(x, 3, rope, positions, factors)
    np.testing.assert_allclose(rows[:, : 3 * head_dim], want, rtol=1e-6, atol=3e-7)
    assert (rows[:, 3 * head_dim :] == SENTINEL).all()
    if dim < head_dim:  # the tail of a head does not turn
        tails = rows[:, : 3 * head_dim].reshape(len(x), 3, head_dim)[..., dim:]
        assert np.array_equal(tails, x.reshape(len(x), 3, head_dim)[..., dim:])


@pytest.mark.parametrize("pairs", ["adjacent", "halves"])
@pytest.mark.parametrize("last", [None, 0, 70, 10**6])
def test_rows_of_a_rope_table_do_not_depend_on_who_asked_before(last: int | None, pairs: str) -> None:
    rope = Rope(dim=16, base=1e4, pairs=pairs)
    at_once, one_by_one = (RopeTable(rope, None, last, rows=300) for _ in range(2))
    for start in (0, 40, 4000, 131000, 7 * 10**8):
        positions = np.arange(start, start + 300)
        at_once.take(positions)
        for position in positions[::-7].tolist():
            one_by_one.take_one(position)
            assert np.array_equal(one_by_one.values[0], at_once.values[position - start])
            turned = min(position, position if last is None else last)
            fresh = RopeTable(rope, None)
            fresh.take_one(turned)
            assert np.array_equal(fresh.values[0], at_once.values[position - start])


def test_a_rope_table_keeps_few_pages_and_rows_of_many_sequences_are_each_their_own() -> None:
    rope, rng = Rope(dim=8, base=1e4, pairs="halves"), np.random.default_rng(0)
    table = RopeTable(rope, None, rows=200, max_sequences=200)
    for _ in range(5):
        positions = rng.integers(0, 10**7, 200)
        table.take(positions)
        cos, _ = cos_sin(rope, positions)
        assert np.array_equal(table.values[:, 0, :4], cos)
    assert len(table._pages) == 200 // 64 + 2 * 200 < 5 * 200
    for position in range(0, 64 * 1000, 64):
        table.take_one(position)
    assert len(table._pages) == 200 // 64 + 2 * 200


# ---- sums and copies ----
@levels
@pytest.mark.parametrize("one_row", [False, True])
def test_add_rows(one_row: bool, level: str) -> None:
    x, y = floats(5, 70), floats(5, 70, seed=1)
    a, b, out = cpu.make_rows(x), cpu.make_rows(y), cpu.make_rows(np.zeros_like(x))
    arguments = [address(a), a.strides[0], address(b), 0 if one_row else b.strides[0], address(out), out.strides[0], 3]
    cpu.call(level, "add_rows", arguments, shuffled(5))
    assert np.array_equal(out[:, :70], x + (y[0] if one_row else y))


@levels
def test_gather(level: str) -> None:
    x, wanted = cpu.make_rows(floats(9, 70)), np.array([0, 3, 4, 8], np.int64)
    out = cpu.make_rows(np.zeros((4, 70), np.float32))
    arguments = [address(x), x.strides[0], address(out), 3]
    cpu.call(level, "gather", arguments, shuffled(4), {slots.LOGIT_ROWS: address(wanted)})
    assert np.array_equal(out[:, :70], x[wanted, :70])


# ---- exp ----
def test_exp_is_within_one_and_a_half_units() -> None:
    """The word is compiled here, by itself: no kernel is just an exp."""
    from numba import njit

    from edgellm.kernels.cpu.simd import exp, load_f32x32, store_f32x32

    def every(source: int, target: int, count: int) -> None:
        for i in range(0, 4 * count, 128):
            store_f32x32(target + i, exp(load_f32x32(source + i)))

    compiled = njit(error_model="numpy")(every)

    def run(values: Sequence[float] | np.ndarray) -> np.ndarray:
        x, y = (cpu.make_copy(np.asarray(values, np.float32)) for _ in range(2))
        compiled(address(x), address(y), len(x))
        return y

    rng = np.random.default_rng(0)
    x = np.concatenate(
        [np.linspace(-87, 88, 1 << 19), rng.standard_normal(1 << 18) * 3, rng.standard_normal(1 << 17) / 99]
    )
    x = x.astype(np.float32)
    want = np.exp(x.astype(np.float64))
    unit = np.spacing(want.astype(np.float32)).astype(np.float64)
    assert (np.abs(run(x) - want) / unit).max() <= 1.5
    edges = run(np.resize(np.array([0, -0.0, -87, -88, -1e30, -np.inf, 88, 89, 1e30, np.inf], np.float32), 32))[:10]
    assert (edges[:2] == 1).all() and (edges[3:6] == edges[2]).all() and (edges[7:] == edges[6]).all()
    assert 0 < edges[2] < 1.7e-38 and 1.6e38 < edges[6] < np.inf


# ---- half precision ----
@levels
def test_every_half_is_read_exactly(level: str) -> None:
    """Through the F16 matrix kernel, times one."""
    halves = np.arange(1 << 16, dtype=np.uint16).reshape(-1, 1)
    got = cpu.product(level, "F16", halves.view(np.uint8), np.ones((1, 1), np.float32), 1)[0]
    with np.errstate(invalid="ignore"):  # signalling NaNs
        want = halves[:, 0].view(np.float16).astype(np.float32)
    numbers = ~np.isnan(want)
    assert np.array_equal(got[numbers], want[numbers]) and np.isnan(got[~numbers]).all()


@levels
def test_floats_become_halves_as_in_numpy(level: str) -> None:
    """Through store_kv: K's halves are written one by one and V's in vectors."""
    values = interesting_floats()
    tokens, dim = len(values) // 40, 40
    rows = cpu.make_rows(values[: tokens * dim].reshape(tokens, dim), fill=SENTINEL)
    tiles, k_bytes, v_bytes = -(-tokens // 64), 64 * dim * 2, 64 * 64 * 2
    cache = aligned(tiles * (k_bytes + v_bytes)).reshape(tiles, -1)
    table, zeros = np.arange(tiles, dtype=np.int32), np.zeros(tokens, np.int64)
    positions = np.arange(tokens, dtype=np.int64)
    source, places = [address(rows), rows.strides[0]], [address(cache), address(cache) + k_bytes, address(table), 0]
    sizes = [tiles, 1, k_bytes + v_bytes, k_bytes, v_bytes, 1, dim]
    stores = [cpu.get_kernels(level)[cache_kernels.names("f16", "f16")[part]] for part in ("store_k", "store_v")]
    arguments = [*source, *source, *places, *sizes, *stores, dim]
    cpu.call(
        level,
        "store_kv",
        arguments,
        range(tokens),
        {slots.POSITIONS: address(positions), slots.SEQUENCES: address(zeros)},
    )
    k, v = (np.ascontiguousarray(part).view(np.uint16) for part in np.split(cache, [k_bytes], axis=1))
    got_k = k.reshape(tiles, 2, dim, 32).transpose(0, 1, 3, 2).reshape(-1, dim)[:tokens]
    got_v = v.reshape(tiles, 2, 64, 32).transpose(0, 2, 1, 3).reshape(-1, 64)[:tokens]
    assert not got_v[:, dim:].any(), "padding must be zero"
    with np.errstate(over="ignore"):
        want = np.clip(rows[:, :dim], -65504, 65504).astype(np.float16)
    for got in (got_k, got_v[:, :dim]):
        assert np.array_equal(np.isnan(got.view(np.float16)), np.isnan(want))
        numbers = ~np.isnan(want)
        assert np.array_equal(got[numbers], want.view(np.uint16)[numbers])


def interesting_floats() -> np.ndarray:
    """All halves, the floats around the middle between neighbours, and random bits of every size; NaNs of many kinds."""
    with np.errstate(invalid="ignore"):
        halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
    finite = np.sort(halves[np.isfinite(halves)])
    middles = (finite[1:] + finite[:-1]) / 2
    around = [np.nextafter(middles, np.float32(s)) for s in (-np.inf, np.inf)]
    edges = np.array([65519.996, 65520, 65536, 1e10, 3.4e38, 1e-45, 1e-38, 2**-25, 2**-24, 6.1e-5], np.float32)
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 1 << 32, 200_000, np.uint32).view(np.float32)
    near = (rng.standard_normal(200_000) * 2.0 ** rng.integers(-26, 17, 200_000)).astype(np.float32)
    return np.concatenate([halves, middles, *around, edges, -edges, bits, near])
