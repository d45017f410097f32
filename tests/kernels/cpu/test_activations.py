"""Kernels that put values through a function against reference.py and double precision: activations, gates, products, the cap."""

from __future__ import annotations

import math

import cpu_kernels as cpu
import expected_products as oracle
import numpy as np
import pytest

from edgellm.kernels import reference
from edgellm.kernels.cpu import slots
from edgellm.kernels.cpu.memory import address, aligned
from edgellm.kernels.ops import ACTIVATIONS

CODES = {name: getattr(slots, name.upper()) for name in (*ACTIVATIONS, "identity")}
levels = pytest.mark.parametrize("level", cpu.LEVEL_NAMES)


def floats(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(np.float32)


def shuffled(count: int) -> list[int]:
    return np.random.default_rng(count).permutation(count).tolist()


def run_gated(level: str, gate: np.ndarray, up: np.ndarray, activation: int, how: int, out: np.ndarray) -> None:
    a, b = cpu.make_rows(gate), cpu.make_rows(up)
    groups, some = a.shape[1] // 32, 2
    stride = groups if how == slots.QUANTISE else out.strides[0]
    arguments = [address(a), address(b), a.strides[0], groups, some, activation, address(out), stride, how, 1, 1]
    cpu.call(level, "gated", arguments, shuffled(len(gate) * -(-groups // some)))


def run_activate(level: str, rows: np.ndarray, activation: int, how: int, out: np.ndarray) -> None:
    groups = rows.shape[1] // 32
    arguments = [address(rows), 0, rows.strides[0], groups, 2, activation, address(out), out.strides[0], how, 1, 1]
    cpu.call(level, "gated", arguments, shuffled(len(rows) * -(-groups // 2)))


activations = pytest.mark.parametrize("name", ACTIVATIONS)


@levels
@activations
@pytest.mark.parametrize("width", [8, 32, 96, 160, 1536])
def test_gated(name: str, width: int, level: str) -> None:
    gate, up = floats(4, width) * 4, floats(4, width, seed=1)
    out = cpu.make_rows(np.zeros_like(up))
    run_gated(level, gate, up, CODES[name], slots.STORE, out)
    np.testing.assert_allclose(out[:, :width], reference.gated(gate, up, name), rtol=2e-6, atol=3e-6)
    if width % 32 == 0:
        tiles = aligned(4 * width // 32 * 48).reshape(4, width // 32, 48)
        run_gated(level, gate, up, CODES[name], slots.QUANTISE, tiles)
        got, want = cpu.read_tiles(tiles, 4, 1)[0], oracle.quantised(out[:, :width])
        assert all(np.array_equal(getattr(got, f), getattr(want, f)) for f in ("values", "scales", "sums"))


@levels
@activations
def test_gated_far_out(name: str, level: str) -> None:
    sizes = np.array(
        [0, 1e-45, 1e-38, 1e-20, 1e-6, 0.1, 1, 3, 5, 9, 13.5, 20, 80, 87, 88, 89, 100, 1e4, 1e10, 1e30, 3e38]
    )
    gate = np.concatenate([sizes, -sizes])[None].astype(np.float32)
    out = cpu.make_rows(np.zeros_like(gate))
    run_gated(level, gate, np.ones_like(gate), CODES[name], slots.STORE, out)
    got, x = out[0, : gate.shape[1]].astype(np.float64), gate[0].astype(np.float64)
    want, inner = in_double(name, x)
    # exp turns its argument's rounding into a relative error. It ends at 88, so 0 may be |x| * exp(-88).
    allowed = 2e-7 * (4 + np.minimum(np.abs(inner), 100)) * np.abs(want)
    allowed += 1.1 * np.maximum(np.abs(x), 1) * np.exp(-87.0) + 1e-44
    assert (np.abs(got - want) <= allowed).all()


def in_double(name: str, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """-> an activation of f64[N], and the argument that its exponential gets."""
    with np.errstate(over="ignore"):
        if name == "gelu_erf":
            return x * np.array([math.erfc(-v / math.sqrt(2)) / 2 for v in x.tolist()]), x**2 / 2
        if name == "relu":
            return np.maximum(x, 0), x
        if name == "softplus":
            return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))), x
        inner = 2 * np.sqrt(2 / np.pi) * (x + 0.044715 * x**3) if name == "gelu" else x
        return (1 if name == "sigmoid" else x) / (1 + np.exp(-inner)), inner


@levels
@pytest.mark.parametrize("name", [*ACTIVATIONS, "identity"])
def test_gated_keeps_what_is_no_number(name: str, level: str) -> None:
    gate = np.array([[np.nan, 1, np.inf, 1]], np.float32)
    up = np.array([[1, np.nan, 1, np.inf]], np.float32)
    out = cpu.make_rows(np.zeros_like(up))
    run_gated(level, gate, up, CODES[name], slots.STORE, out)
    assert np.isnan(out[0, :2]).all() and out[0, 3] == np.inf
    assert out[0, 2] == (1 if name == "sigmoid" else np.inf)


@levels
@activations
@pytest.mark.parametrize("how", [slots.STORE, slots.ADD])
def test_activate_works_in_place_and_adds(how: int, name: str, level: str) -> None:
    x, before = floats(4, 70) * 4, floats(4, 70, seed=1)
    rows = cpu.make_rows(x)
    out = rows if how == slots.STORE else cpu.make_rows(before)
    run_activate(level, rows, CODES[name], how, out)
    want = reference.activate(x, name) + (before if how == slots.ADD else 0)
    np.testing.assert_allclose(out[:, :70], want, rtol=2e-6, atol=3e-6)


@levels
def test_a_product_is_exact(level: str) -> None:
    x, y = floats(4, 70), floats(4, 70, seed=1)
    out = cpu.make_rows(np.zeros_like(x))
    run_gated(level, x, y, CODES["identity"], slots.STORE, out)
    assert np.array_equal(out[:, :70], x * y)


@levels
@pytest.mark.parametrize("in_place", [False, True])
def test_softcap(in_place: bool, level: str) -> None:
    x = np.concatenate([floats(4, 50) * 40, [[0, 30, -1e3, 1e6, np.inf, -np.inf, np.nan]] * 4], axis=1).astype(
        np.float32
    )
    rows = cpu.make_rows(x)
    out, groups, some = rows if in_place else cpu.make_rows(np.zeros_like(x)), 2, 1
    arguments = [address(rows), rows.strides[0], groups, some, cpu.float_word(30)]
    cpu.call(level, "softcap", [*arguments, address(out), out.strides[0], slots.STORE, 1, 1], shuffled(8))
    np.testing.assert_allclose(out[:, : x.shape[1]], reference.softcap(x, 30.0), rtol=2e-6, atol=8e-6)


def test_activations_have_the_same_bits_on_every_level() -> None:
    for name in ACTIVATIONS:
        results = set()
        for level in cpu.get_available_levels():
            rows = cpu.make_rows(floats(3, 320) * 6)
            run_activate(level, rows, CODES[name], slots.STORE, rows)
            results.add(rows.tobytes())
        assert len(results) == 1
