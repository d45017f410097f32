"""Attention is shared out so that each token meets each split in its reach exactly once, and no two results share a place."""

from __future__ import annotations

import numpy as np
import pytest

from edgellm.kernels.cpu import slots, tasks

MAX_CONTEXT = 2000


def random_batch(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Positions and sequences of a batch: some sequences, some tokens of each, at any depth."""
    count = int(rng.integers(1, 6))
    sizes = rng.choice([1, 2, 7, 8, 9, 30, 300], count)
    starts = rng.choice([0, 1, 60, 255, 256, 257, 700, MAX_CONTEXT - 300], count)
    positions = np.concatenate([np.arange(s, s + n) for s, n in zip(starts, sizes, strict=True)])
    return positions.astype(np.int64), np.repeat(rng.permutation(9)[:count], sizes).astype(np.int32)


def reach(position: int, window: int | None) -> set[int]:
    first = 0 if window is None else max(0, position - window + 1)
    return set(range(first // slots.SPLIT, position // slots.SPLIT + 1))


@pytest.mark.parametrize("window", [None, 1, 5, 256, 257, 600])
@pytest.mark.parametrize("block", [1, 3, 8, 24])
def test_shares_cover_exactly_the_reach(block: int, window: int | None) -> None:
    rng = np.random.default_rng((block, window or 0))
    for _ in range(10):
        positions, sequences = random_batch(rng)
        count_tokens, runs = len(positions), len(np.unique(sequences))
        room = tasks.max_tasks(count_tokens, runs, MAX_CONTEXT)
        table, where = np.full((room, slots.TASK_WORDS), -1, np.int64), np.full((count_tokens, 3), -1, np.int64)
        count = tasks.share_out(table, where, positions, sequences, window, 0, block)
        assert 0 < count <= room and (table[count:] == -1).all()
        check(
            table[:count], where, positions, sequences, window, tasks.max_partial_rows(count_tokens, runs, MAX_CONTEXT)
        )


def check(
    table: np.ndarray,
    where: np.ndarray,
    positions: np.ndarray,
    sequences: np.ndarray,
    window: int | None,
    room: int,
) -> None:
    places: dict[tuple[int, int], list[int]] = {}  # (token, partial row) -> splits
    for task in table.tolist():
        tokens = range(task[slots.FIRST_TOKEN], task[slots.FIRST_TOKEN] + task[slots.NUM_TOKENS])
        assert set(sequences[tokens.start : tokens.stop].tolist()) == {task[slots.TABLE]}
        for i, token in enumerate(tokens):
            key = (token, task[slots.PARTIAL_ROW] + i)
            assert key not in places
            places[key] = list(range(task[slots.FIRST_SPLIT], task[slots.END_SPLIT]))
    rows = [row for _, row in places]
    assert len(set(rows)) == len(rows) and min(rows) >= 0 and max(rows) < room
    for token, (first, count, step) in enumerate(where.tolist()):
        mine = [places.pop((token, first + i * step)) for i in range(count)]
        splits = [s for part in mine for s in part]
        needed = reach(int(positions[token]), window)
        # In order and without gaps; a task of many tokens may walk over splits that only some of them reach.
        assert splits == list(range(splits[0], splits[-1] + 1)) and needed <= set(splits)
        own = positions[sequences == sequences[token]]
        assert set(splits) <= {s for position in own.tolist() for s in reach(position, window)}
    assert not places, "partial results that nobody joins"


@pytest.mark.parametrize("tokens", [1, 5, 8])
def test_few_tokens_are_shared_out_by_splits(tokens: int) -> None:
    """So that decoding deep in one sequence keeps all threads busy."""
    table, where = np.zeros((20, slots.TASK_WORDS), np.int64), np.zeros((tokens, 3), np.int64)
    positions = np.arange(1000, 1000 + tokens, dtype=np.int64)
    assert tasks.share_out(table, where, positions, np.zeros(tokens, np.int32), None, 0, 24) == 4
    assert tasks.share_out(table, where, positions, np.zeros(tokens, np.int32), 300, 0, 24) == 2
    assert (where[:, 1] == 2).all()


@pytest.mark.parametrize("sinks", [1, 64])
@pytest.mark.parametrize("window", [5, 256, 600])
def test_sink_tokens_come_first_once_they_left_the_window(window: int, sinks: int) -> None:
    rng = np.random.default_rng((window, sinks))
    for _ in range(20):
        positions, sequences = random_batch(rng)
        count_tokens, runs = len(positions), len(np.unique(sequences))
        room = tasks.max_tasks(count_tokens, runs, MAX_CONTEXT)
        table, where = np.zeros((room, slots.TASK_WORDS), np.int64), np.zeros((count_tokens, 3), np.int64)
        count = tasks.share_out(table, where, positions, sequences, window, sinks, 8)
        assert 0 < count <= room
        assert (where[:, 0] + (where[:, 1] - 1) * where[:, 2]).max() < tasks.max_partial_rows(
            count_tokens, runs, MAX_CONTEXT
        )
        passes = {int(row): int(task[slots.SINKS]) for task in table[:count] for row in rows_of(task)}
        empty = {
            int(row)
            for task in table[:count]
            if task[slots.FIRST_SPLIT] == task[slots.END_SPLIT]
            for row in rows_of(task)
        }
        for position, (first, pieces, step) in zip(positions, where.tolist(), strict=True):
            has_sinks = [passes[first + i * step] for i in range(pieces)]
            assert has_sinks[0] == 1 or position < window, "a query without its sink tokens"
            assert not any(has_sinks[1:]), "sink tokens are joined first"
            assert not any(first + i * step in empty for i in range(1, pieces))


def rows_of(task: np.ndarray) -> range:
    return range(task[slots.PARTIAL_ROW], task[slots.PARTIAL_ROW] + task[slots.NUM_TOKENS])


def test_runs() -> None:
    assert tasks.runs(np.array([4], np.int32)) == [(0, 1)]
    assert tasks.runs(np.array([4, 4, 0, 7, 7, 7], np.int32)) == [(0, 2), (2, 3), (3, 6)]
