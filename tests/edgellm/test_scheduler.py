"""Scheduler: who is admitted, how a chunk is shared, and that slots come back."""

from __future__ import annotations

import pytest

from edgellm.cache.kv import KVCache
from edgellm.kernels.ops import CacheLayer
from edgellm.scheduler import Scheduler
from edgellm.sequence import Sequence


@pytest.fixture
def scheduler() -> Scheduler:
    return Scheduler(KVCache([CacheLayer(1, 32)], 100, max_sequences=2, prefill_chunk=8), prefill_chunk=8)


def play(scheduler: Scheduler) -> list[tuple[int, int]]:
    """One step: (first id, tokens) per sequence; a finished prompt gets a token."""
    works = scheduler.schedule()
    for sequence, count in works:
        sequence.advance(count)
        if sequence.num_pending == 0:
            sequence.take(99, (), 1000)
    return [(sequence.token_ids[0], count) for sequence, count in works]


def test_the_chunk_is_shared_first_come_first_served_and_decoding_goes_on_beside_it(scheduler: Scheduler) -> None:
    for first, size in [(1, 3), (2, 18), (3, 1)]:
        scheduler.add(Sequence([first] * size))
    assert play(scheduler) == [(1, 3), (2, 5)]
    assert play(scheduler) == [(1, 1), (2, 8)]
    assert play(scheduler) == [(1, 1), (2, 5)]
    assert play(scheduler) == [(1, 1), (2, 1)]


def test_who_finds_no_slot_waits_for_one(scheduler: Scheduler) -> None:
    sequences = [Sequence([i]) for i in range(4)]
    for sequence in sequences:
        scheduler.add(sequence)
    assert play(scheduler) == [(0, 1), (1, 1)]
    scheduler.remove(sequences[2])
    scheduler.remove(sequences[0])
    scheduler.remove(sequences[0])
    assert play(scheduler) == [(1, 1), (3, 1)]
    assert sequences[3].slot == 0
    assert scheduler.sequences == [sequences[1], sequences[3]]
    for sequence in sequences:
        scheduler.remove(sequence)
    assert not scheduler.has_work and scheduler.schedule() == []


def test_a_prompt_that_the_chunk_has_no_room_for_is_left_out_of_the_step(scheduler: Scheduler) -> None:
    scheduler.add(Sequence([1] * 8))
    scheduler.add(Sequence([2] * 2))
    assert play(scheduler) == [(1, 8)]
    assert play(scheduler) == [(1, 1), (2, 2)]


def test_every_scheduled_token_has_a_place_in_the_cache(scheduler: Scheduler) -> None:
    sequence = Sequence([1] * 20)
    scheduler.add(sequence)
    for expected in (8, 16, 20, 21):
        play(scheduler)
        assert scheduler._cache.length(sequence.slot) == expected
