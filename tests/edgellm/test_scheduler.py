"""Scheduler: who is admitted, how a chunk is shared, and that slots come back."""

from __future__ import annotations

import pytest
from scheduled import play

from edgellm.cache.kv import KVCache
from edgellm.cache.memory import needed_bytes
from edgellm.kernels.ops import CacheLayer
from edgellm.scheduler import Scheduler
from edgellm.sequence import Sequence, SequenceState


@pytest.fixture
def scheduler() -> Scheduler:
    return Scheduler(KVCache([CacheLayer(1, 32)], 100, max_sequences=2, prefill_chunk=8), prefill_chunk=8)


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


def small(num_blocks: int, max_sequences: int = 3) -> Scheduler:
    """A scheduler whose cache has room for so many blocks of 64 tokens, of which one sequence may take four."""
    layers = [CacheLayer(1, 32)]
    memory = needed_bytes(layers, 64 * num_blocks, 1, 64)
    return Scheduler(KVCache(layers, 256, max_sequences, 64, memory_bytes=memory), prefill_chunk=64)


@pytest.mark.parametrize(("num_blocks", "had"), [(5, 64), (4, 63)])
def test_the_youngest_gives_way_and_goes_on_where_it_was(num_blocks: int, had: int) -> None:
    """In five blocks it finds no second one for itself; in four the one before it takes what it has."""
    scheduler = small(num_blocks)
    sequences = old, young, younger = [Sequence([first] * 60) for first in (1, 2, 3)]
    for sequence in sequences:
        scheduler.add(sequence)
    assert [play(scheduler) for _ in range(3)] == [
        [(1, 60), (2, 4)],
        [(1, 1), (2, 56), (3, 8)],
        [(1, 1), (2, 1), (3, 52)],
    ]
    while younger.state is SequenceState.RUNNING:
        cached = younger.num_cached
        play(scheduler)
    assert cached == had and [s.state for s in (old, young)] == [SequenceState.RUNNING] * 2
    assert scheduler.sequences == sequences and younger.slot == -1
    known, started = len(younger.token_ids), younger.started_s
    assert known == had + 1
    scheduler.remove(young)
    assert play(scheduler)[1] == (3, 1 if num_blocks == 5 else had + 1), "what was still there is used"
    assert younger.state is SequenceState.RUNNING and younger.started_s == started and younger.num_reused == 0
    assert younger.num_cached == known and len(younger.token_ids) == known + 1


def test_who_gave_way_waits_until_there_is_room_for_all_of_it() -> None:
    scheduler = small(4, 2)
    old, young = Sequence([1] * 120), Sequence([2] * 100)
    scheduler.add(old)
    scheduler.add(young)
    while young.state is not SequenceState.WAITING or old.num_cached < 130:
        play(scheduler)
    for _ in range(30):
        assert [first for first, _ in play(scheduler)] == [1]
    scheduler.remove(old)
    assert [first for first, _ in play(scheduler)] == [2]


def test_a_sequence_alone_never_gives_way() -> None:
    scheduler = small(4)
    sequence = Sequence([1] * 250)
    scheduler.add(sequence)
    for _ in range(4):
        play(scheduler)
    for length in range(252, 257):
        assert play(scheduler) == [(1, 1)] and len(sequence.token_ids) == length


def test_beginnings_are_used_again_unless_every_row_is_wanted() -> None:
    scheduler = small(8)
    first = Sequence([1] * 100)
    scheduler.add(first)
    play(scheduler), play(scheduler)
    scheduler.remove(first)
    again, logits, failed = Sequence([1] * 100 + [2]), Sequence([1] * 100, keep_logits=True), Sequence([4] * 9)
    for sequence in (again, logits, failed):
        scheduler.add(sequence)
    assert play(scheduler) == [(1, 1), (1, 64)]
    assert (again.num_reused, logits.num_reused) == (100, 0)
    while failed.num_cached == 0:
        play(scheduler)
    scheduler.remove(failed, keep=False)
    assert all(node.token_ids[0] != 4 for node in scheduler._cache.tree)


def test_a_guess_is_told_of_all_that_the_step_computes_beside_it() -> None:
    """Of those that come later too: eight sequences pay for eight rows whatever the first one guesses."""
    cache = KVCache([CacheLayer(1, 32)], 100, max_sequences=4, prefill_chunk=16)
    told: list[tuple[int, int]] = []

    def guess(sequence: Sequence, longest: int, other_rows: int) -> list[int]:
        told.append((sequence.token_ids[0], other_rows))
        return [7] * 3 if sequence.token_ids[0] == 2 else []

    scheduler = Scheduler(cache, prefill_chunk=16, guess=guess)
    for first, size in [(1, 3), (2, 3), (3, 3)]:
        scheduler.add(Sequence([first] * size))
    play(scheduler)
    assert told == [], "nobody guesses in a prompt"
    scheduler.schedule()
    assert told == [(1, 2), (2, 2), (3, 5)]
    told.clear()
    scheduler.add(Sequence([4] * 6))
    scheduler.schedule()
    assert told == [(1, 8), (2, 8), (3, 11)], "a prompt's rows count"
