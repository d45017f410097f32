"""Scans of a row of logits: compiled against plain, at every level of this machine, whatever lies behind the row."""

from __future__ import annotations

import functools

import cpu_kernels as cpu
import numpy as np
import pytest
from numpy.typing import NDArray

from edgellm import paths
from edgellm.kernels.cpu import objects, slots, threads
from edgellm.kernels.cpu.vocabulary import KERNELS, CpuVocabulary
from edgellm.kernels.vocabulary import Vocabulary

levels = pytest.mark.parametrize("level", cpu.LEVEL_NAMES)
SIZES = [1, 31, 32, 33, 2047, 2048, 2049, 70_001]


@functools.cache
def get_kernels(level: str) -> dict[str, int]:
    return objects.addresses(KERNELS, cpu.get_level(level), paths.home() / "kernels")


def make_row(kind: str, size: int) -> NDArray[np.float32]:
    row = np.random.default_rng(size).normal(0, 3, size).astype(np.float32)
    if kind == "equal":
        row[:] = 1.5
    elif kind == "masked":
        row[np.random.default_rng(1).random(size) < 0.7] = -np.inf
        row[size // 2] = 1.0
    return row


@levels
@pytest.mark.parametrize("kind", ["normal", "equal", "masked"])
@pytest.mark.parametrize("size", SIZES)
def test_it_says_what_numpy_says(size: int, kind: str, level: str) -> None:
    row = make_row(kind, size)
    plain, compiled = Vocabulary(), CpuVocabulary(get_kernels(level), size)
    assert plain.read(row.copy()) == compiled.read(row.copy())
    for k in (1, 2, 40, 700):
        if k <= size:
            assert compiled.top_ids(k).tolist() == plain.top_ids(k).tolist()
            likely = compiled.likely(k)
            assert set(plain.top_ids(k)) <= set(likely) and (np.diff(likely) > 0).all()
    for bound in (-np.inf, 1.0, 1.5, 5.0, 1e30):
        assert compiled.reaching(bound).tolist() == plain.reaching(bound).tolist()
    assert compiled.weigh(1.3) == pytest.approx(plain.weigh(1.3), rel=3e-6)
    np.testing.assert_allclose(compiled.weights, plain.weights, rtol=1e-5, atol=1e-37)
    assert compiled.mean_depth == pytest.approx(plain.mean_depth, rel=1e-4, abs=1e-6)
    np.testing.assert_allclose(compiled.depths(8.0, 50), plain.depths(8.0, 50), rtol=1e-4, atol=1e-30)
    np.testing.assert_allclose(compiled.moments(), plain.moments(), rtol=1e-4, atol=2e-3)
    for share in (0.0, 0.37, 0.99):
        assert compiled.weights[compiled.pick(share)] > 0.0
    for vocabulary in (plain, compiled):
        vocabulary.forbid_below(1.0)
    assert compiled.row.tolist() == plain.row.tolist()
    assert compiled.reaching(-np.inf).tolist() == plain.reaching(-np.inf).tolist()


@levels
def test_levels_give_the_same_bits(level: str) -> None:
    row = make_row("normal", 5000)
    ours, generic = (CpuVocabulary(get_kernels(name), 5000) for name in (level, "generic"))
    for vocabulary in (ours, generic):
        vocabulary.read(row)
    assert ours.weigh(0.7) == generic.weigh(0.7) and (ours.weights == generic.weights).all()
    assert (ours.depths(16.0, 200) == generic.depths(16.0, 200)).all() and ours.moments() == generic.moments()


@levels
@pytest.mark.parametrize("size", [1, 33, 5000])
def test_what_is_no_number_is_seen_and_nothing_behind_the_row(size: int, level: str) -> None:
    vocabulary = CpuVocabulary(get_kernels(level), size)
    room = np.full(size + 64, np.nan, np.float32)
    row = room[:size]
    row[:] = make_row("normal", size)
    assert vocabulary.read(row) == row.max()
    assert len(vocabulary.reaching(-np.inf)) == size
    for bad in (np.nan, -np.nan, np.inf):
        for place in (0, size // 2, size - 1):
            broken = row.copy()
            broken[place] = bad
            assert np.isnan(vocabulary.read(broken))
    assert vocabulary.read(np.full(size, -np.inf, np.float32)) == -np.inf


def test_draws_follow_the_weights() -> None:
    row = make_row("normal", 5000)
    vocabulary = CpuVocabulary(get_kernels(cpu.LEVEL_NAMES[0]), 5000)
    vocabulary.read(row)
    total = vocabulary.weigh()
    for share in np.linspace(0, 0.9999, 50):
        found = vocabulary.pick(float(share))
        before = float(vocabulary.weights[:found].sum(dtype=np.float64)) / total
        assert before - 1e-5 <= share <= before + float(vocabulary.weights[found]) / total + 1e-5


@pytest.mark.parametrize("is_aborted", [False, True])
def test_threads_share_a_row_and_a_stop_leaves_nothing_out(is_aborted: bool) -> None:
    """A sequence of several is stopped while another one's token is chosen: its scans must be whole."""
    size = 70_001
    kernels = objects.addresses(
        [*KERNELS, *threads.KERNELS], cpu.get_level(cpu.LEVEL_NAMES[0]), paths.home() / "kernels"
    )
    team = threads.Threads(3, kernels, 64)
    alone, shared = CpuVocabulary(kernels, size), CpuVocabulary(kernels, size, team)
    for kind in ("normal", "masked", "equal"):
        row = make_row(kind, size)
        team.ctx[slots.ABORT] = is_aborted
        found = [vocabulary.read(row.copy()) for vocabulary in (alone, shared)]
        found += [vocabulary.weigh(0.9) for vocabulary in (alone, shared)]
        assert found[0] == found[1] and found[2] == found[3] and (alone.weights == shared.weights).all()
        assert (alone.depths(8.0, 300) == shared.depths(8.0, 300)).all() and alone.moments() == shared.moments()
        for vocabulary in (alone, shared):
            vocabulary.forbid_below(1.0)
        assert alone.row.tobytes() == shared.row.tobytes() and alone.top_ids(9).tolist() == shared.top_ids(9).tolist()
    team.close()
