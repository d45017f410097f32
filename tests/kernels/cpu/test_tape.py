"""Tapes: ops that need nothing of each other share a stage, chunks follow the batch, and every chunk is done exactly once."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import cpu_kernels as cpu
import numpy as np
import pytest

from edgellm.kernels.cpu import isa, slots
from edgellm.kernels.cpu.memory import address
from edgellm.kernels.cpu.tape import Tape, TapeWriter
from edgellm.kernels.cpu.threads import Threads


def first_ops(tape: Tape) -> list[int]:
    """Index of each stage's first op."""
    offsets = tape.stages[:, slots.FIRST_OP] - address(tape.records)
    return (offsets // (8 * slots.OP_WORDS)).tolist()


@pytest.mark.parametrize(
    ("accesses", "stages"),
    [
        ([((), (1,)), ((), (2,)), ((1, 2), (3,))], [0, 2]),
        ([((), (1,)), ((1,), (2,))], [0, 1]),  # read after write
        ([((1,), (2,)), ((), (1,))], [0, 1]),  # write after read
        ([((), (1,)), ((), (1,))], [0, 1]),  # write after write
        ([((1,), (2,)), ((1,), (3,)), ((1,), (4,))], [0]),  # reading together
        ([((1,), (2,)), ((3,), (4,)), ((2,), (5,)), ((4,), (6,)), ((5, 6), (7,))], [0, 2, 4]),
        ([((1,), (1,)), ((2,), (2,))], [0]),  # in place, apart
    ],
)
def test_stages_begin_where_one_op_needs_another(accesses: list, stages: list[int]) -> None:
    writer = TapeWriter({"k": 77}, [])
    for i, (reads, writes) in enumerate(accesses):
        assert writer.op("k", [i], 1, None, reads, writes) == i
    tape = writer.finish()
    assert first_ops(tape) == stages and tape.names == ["k"] * len(accesses)
    assert (tape.records[:, slots.KERNEL] == 77).all()
    assert tape.records[:, slots.ARG].tolist() == list(range(len(accesses)))


def test_chunks_follow_the_sizes_of_the_batch() -> None:
    writer = TapeWriter({"k": 1}, ["tokens", "tasks"])
    writer.op("k", [], 5, None, [], [1])
    writer.op("k", [], 3, "tokens", [], [2])
    writer.op("k", [], 2, "tasks", [1, 2], [3])
    tape = writer.finish()
    for tokens, tasks in ((1, 1), (7, 4), (0, 3)):
        tape.resize((1, tokens, tasks))
        assert tape.records[:, slots.CHUNKS].tolist() == [5, 3 * tokens, 2 * tasks]
        assert tape.stages[:, slots.STAGE_CHUNKS].tolist() == [5 + 3 * tokens, 2 * tasks]


def test_a_chunk_makes_several_calls() -> None:
    """Calls are shared out in runs of `each`, the last one shorter; none is left out or made twice."""
    kernels = cpu.get_kernels(cpu.get_available_levels()[0])
    rows = cpu.make_rows(np.zeros((11, 32), np.float32))
    ones, out = cpu.make_rows(np.ones((1, 32), np.float32)), rows.strides[0]
    for each in (1, 2, 4, 11, 40):
        rows[:] = 0
        writer = TapeWriter(kernels, ["tokens"])
        writer.op(
            "add_rows", [address(rows), out, address(ones), 0, address(rows), out, 1], 1, "tokens", [0], [0], each
        )
        tape = writer.finish()
        tape.resize((1, 11))
        assert tape.records[0, slots.CHUNKS] == -(-11 // each) == tape.stages[0, slots.STAGE_CHUNKS]
        team = Threads(2, kernels, 4096)
        team.run(tape, tokens=11)
        team.close()
        assert (rows == 1).all()


def test_too_many_arguments_are_our_mistake() -> None:
    with pytest.raises(AssertionError):
        TapeWriter({"k": 1}, []).op("k", [0] * slots.OP_WORDS, 1, None, [], [])


# ---- walking ----
class Sums:
    """A tape whose every chunk adds to a row of its own: a chunk left out, done twice or done early shows.

    Stage s turns row r of plane s into plane s + 1: out = in + in, then out = out + one, in two ops and stages. Chunks of
    several ops are in one stage, so that the number of a chunk must find its op.
    """

    def __init__(self, level: str, stages: int, rows: int) -> None:
        self.planes = [cpu.make_rows(np.zeros((rows, 32), np.float32)) for _ in range(stages + 1)]
        self.ones, kernels = cpu.make_rows(np.ones((1, 32), np.float32)), cpu.get_kernels(level)
        writer, half = TapeWriter(kernels, []), rows // 2
        for s in range(stages):
            x, out = self.planes[s], self.planes[s + 1]
            for part, (first, count) in enumerate(((0, half), (half, rows - half))):
                a, b = address(x[first:]), address(out[first:])
                reads, writes = [(s, part)], [(s + 1, part)]
                writer.op("add_rows", [a, 128, a, 128, b, 128, 1], count, None, map(hash, reads), map(hash, writes))
            for part, (first, count) in enumerate(((0, half), (half, rows - half))):
                b = address(out[first:])
                both = [hash((s + 1, part))]
                writer.op("add_rows", [b, 128, address(self.ones), 0, b, 128, 1], count, None, both, both)
        self.tape = writer.finish()
        self.tape.resize((1,))
        assert len(self.tape.stages) == 2 * stages

    def check(self) -> None:
        for s, plane in enumerate(self.planes):
            assert (plane == 2.0**s - 1).all(), f"after stage {s}"
        for plane in self.planes[1:]:
            plane[:] = 0


@pytest.fixture
def busy() -> Iterator[None]:
    """Two threads that want the cores all the time, and Python's lock now and then."""
    stop = threading.Event()

    def spin() -> None:
        x = np.ones(200_000)
        while not stop.is_set():
            np.dot(x, x)

    workers = [threading.Thread(target=spin) for _ in range(2)]
    for worker in workers:
        worker.start()
    yield
    stop.set()
    for worker in workers:
        worker.join()


def walk_often(count: int, times: int, level: str) -> None:
    sums = Sums(level, stages=12, rows=7)
    threads = Threads(count, dict(cpu.get_kernels(level)), 4096)
    try:
        for _ in range(times):
            threads.run(sums.tape)
            sums.check()
    finally:
        threads.close()


@pytest.mark.parametrize("level", cpu.LEVEL_NAMES)
@pytest.mark.parametrize("count", [1, 2, 3, 9])
def test_every_chunk_is_done_once_and_in_order(count: int, level: str) -> None:
    walk_often(count, 300, level)


@pytest.mark.parametrize("count", [2, 5])
def test_the_same_beside_busy_threads(count: int, busy: None) -> None:
    walk_often(count, 60, isa.choose().level.name)


def test_stages_without_chunks_are_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch without logit rows, say: nothing to do must not mean waiting for it."""
    level = isa.choose().level.name
    x = cpu.make_rows(np.zeros((4, 32), np.float32))
    ones = cpu.make_rows(np.ones((1, 32), np.float32))
    writer = TapeWriter(cpu.get_kernels(level), ["n"])
    for _ in range(5):
        arguments = [address(x), 128, address(ones), 0, address(x), 128, 1]
        writer.op("add_rows", arguments, 1, "n", [1], [1])
    tape = writer.finish()
    threads = Threads(2, dict(cpu.get_kernels(level)), 4096)
    try:
        for n, want in ((4, 5), (2, 10)):
            tape.resize((1, n))
            threads.run(tape)
            assert (x[: min(n, 2)] == want).all()
    finally:
        threads.close()
