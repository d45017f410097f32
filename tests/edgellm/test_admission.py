"""Admission: priorities, turns between clients, and who gives way."""

from __future__ import annotations

import pytest
from scheduled import play

from edgellm.admission import Waiting
from edgellm.cache.kv import KVCache
from edgellm.cache.memory import needed_bytes
from edgellm.kernels.ops import CacheLayer
from edgellm.scheduler import Scheduler
from edgellm.sequence import Sequence, SequenceState


def make(first: int, client: str = "", priority: int = 0, size: int = 1) -> Sequence:
    return Sequence([first] * size, client=client, priority=priority)


def admit_all(waiting: Waiting) -> list[int]:
    order = []
    while waiting:
        sequence = next(waiting.in_turn(lambda _: True))
        waiting.admit(sequence)
        order.append(sequence.token_ids[0])
    return order


def fill(*sequences: Sequence) -> Waiting:
    waiting = Waiting()
    for sequence in sequences:
        waiting.add(sequence)
    return waiting


def test_one_client_is_served_in_the_order_of_arrival() -> None:
    assert admit_all(fill(*(make(i) for i in range(5)))) == [0, 1, 2, 3, 4]


def test_clients_take_turns_however_many_one_of_them_has() -> None:
    waiting = fill(*(make(i, "greedy") for i in range(50)), make(100, "a"), make(200, "b"), make(101, "a"))
    assert admit_all(waiting)[:7] == [0, 100, 200, 1, 101, 2, 3]


def test_turns_are_remembered_beyond_an_empty_queue() -> None:
    waiting = fill(make(1, "a"), make(2, "b"))
    assert admit_all(waiting) == [1, 2]
    for sequence in (make(4, "b"), make(3, "a")):
        waiting.add(sequence)
    assert admit_all(waiting) == [3, 4], "b had its turn after a"


def test_the_memory_of_turns_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgellm.admission.MAX_CLIENTS", 20)
    waiting = fill(*(make(i, f"client {i}") for i in range(70)))
    assert admit_all(waiting) == list(range(70))
    assert list(waiting._turns) == [f"client {i}" for i in range(50, 70)], "those whose turn was last"


def test_the_most_urgent_comes_first_and_turns_hold_among_equals() -> None:
    waiting = fill(
        make(1, "a", 5), make(2, "a"), make(3, "a"), make(4, "b", 5), make(5, "b"), make(6, "c", -1), make(7, "c", -1)
    )
    assert admit_all(waiting) == [6, 7, 2, 5, 3, 4, 1]


def test_who_gave_way_goes_before_new_ones_of_its_priority_and_takes_no_turn() -> None:
    waiting = fill(make(1, "a"), make(2, "b", -1))
    waiting.put_back(make(4, "a"))
    waiting.put_back(make(3, "a"))
    assert admit_all(waiting) == [2, 3, 4, 1]
    waiting.add(make(6, "b"))
    waiting.add(make(5, "a"))
    assert admit_all(waiting) == [6, 5], "that b went on was no turn: its own was before a's"


def test_one_that_may_not_come_yet_is_passed_over() -> None:
    first, second = make(1, "a"), make(2, "a")
    waiting = fill(first, second, make(3, "b"))
    assert [s.token_ids[0] for s in waiting.in_turn(lambda s: s is not first)] == [2, 3]
    assert [s.token_ids[0] for s in waiting.in_turn(lambda _: True)] == [1, 2, 3], (
        "nobody was admitted, so no turn is over"
    )
    waiting.remove(second)
    assert second not in waiting and first in waiting


LAYERS = [CacheLayer(1, 32)]


def scheduler(num_blocks: int, max_sequences: int) -> Scheduler:
    """Room for so many blocks of 64 tokens; a sequence may take four."""
    memory = needed_bytes(LAYERS, 64 * num_blocks, 1, 64)
    return Scheduler(KVCache(LAYERS, 256, max_sequences, 64, memory_bytes=memory), prefill_chunk=64)


def test_fifty_requests_of_one_client_do_not_keep_another_waiting() -> None:
    found = scheduler(16, 2)
    for sequence in [make(1, "greedy") for _ in range(50)]:
        found.add(sequence)
    play(found)
    mine = make(2, "modest")
    found.add(mine)
    found.remove(found.running[0])
    assert (2, 1) in play(found) and mine.state is SequenceState.RUNNING


def test_the_chunk_goes_to_the_most_urgent_prompt() -> None:
    found = scheduler(16, 3)
    found.add(make(1, priority=1, size=100))
    play(found)
    found.add(make(2, priority=0, size=50))
    found.add(make(3, priority=2, size=50))
    assert play(found) == [(2, 50), (1, 14)]
    assert play(found) == [(2, 1), (1, 22), (3, 42)]


@pytest.mark.parametrize("urgent_first", [True, False])
def test_the_least_urgent_gives_way_not_the_youngest(urgent_first: bool) -> None:
    found = scheduler(4, 2)
    sequences = [make(1, priority=0, size=100), make(2, priority=3, size=100)]
    for sequence in sequences if urgent_first else sequences[::-1]:
        found.add(sequence)
    while all(s.state is SequenceState.RUNNING or s.started_s is None for s in sequences):
        play(found)
    assert [s.state for s in sequences] == [SequenceState.RUNNING, SequenceState.WAITING]
    for _ in range(60):
        assert [first for first, _ in play(found)] == [1], "the most urgent always has room"


def test_one_that_waits_takes_nothing_from_those_that_run() -> None:
    found = scheduler(16, 1)
    running, urgent = make(1, priority=9), make(2, priority=-9)
    found.add(running)
    play(found)
    found.add(urgent)
    assert play(found) == [(1, 1)]
    assert found.sequences == [running, urgent]
    found.remove(running)
    assert play(found) == [(2, 1)]
