"""Teams of threads: that they sleep when idle, wake, and end. How many there are: test_cores.py."""

from __future__ import annotations

import gc
import threading
import time

import cpu_kernels as cpu
import numpy as np

from edgellm.kernels.cpu import isa, threads
from edgellm.kernels.cpu.memory import address
from edgellm.kernels.cpu.tape import Tape, TapeWriter

LEVEL = isa.choose().level.name


def make_team(count: int) -> threads.Threads:
    return threads.Threads(count, dict(cpu.get_kernels(LEVEL)), 4096)


class Counter:
    """A tape of one chunk per row; each adds one to its row."""

    def __init__(self, rows: int) -> None:
        self.rows, self._ones = (cpu.make_rows(np.full((n, 32), v, np.float32)) for n, v in ((rows, 0), (1, 1)))
        writer, x = TapeWriter(cpu.get_kernels(LEVEL), []), address(self.rows)
        writer.op("add_rows", [x, 128, address(self._ones), 0, x, 128, 1], rows, None, [], [])
        self.tape: Tape = writer.finish()
        self.tape.resize((1,))


# ---- how they live ----
def live() -> set[threading.Thread]:
    return {t for t in threading.enumerate() if t.name.startswith("edgellm-")}


def test_twenty_teams_leave_no_thread() -> None:
    before = live()
    counter = Counter(40)
    for i in range(20):
        team = make_team(1 + i % 4)
        assert len(live() - before) == i % 4
        team.run(counter.tape)
        team.close()
        assert not live() - before
    team.close()  # harmless again
    assert (counter.rows == 20).all()


def test_a_team_that_never_ran_closes() -> None:
    before = live()
    make_team(4).close()
    assert not live() - before


def test_a_forgotten_team_ends() -> None:
    before = live()
    team = make_team(3)
    assert len(live() - before) == 2
    del team
    gc.collect()
    assert not live() - before


def cpu_seconds(wall_s: float) -> float:
    """CPU time that this process uses while nothing is asked of it."""
    start = time.process_time()
    time.sleep(wall_s)
    return time.process_time() - start


def test_idle_threads_sleep_and_wake_again() -> None:
    counter, team = Counter(64), make_team(3)
    try:
        for n in range(1, 4):
            team.run(counter.tape)
            time.sleep(0.2)  # they look out for the next step for some milliseconds
            assert cpu_seconds(0.4) < 0.04, "idle threads use the CPU"
            assert (counter.rows == n).all()
    finally:
        team.close()


def test_steps_after_pauses_of_every_length() -> None:
    """Around the time when threads fall asleep: a step that begins just then must not wait for ever."""
    counter, team, rng = Counter(8), make_team(3), np.random.default_rng(0)
    try:
        for n in range(1, 120):
            team.run(counter.tape)
            assert (counter.rows == n).all()
            time.sleep(float(rng.uniform(0, 0.02)))
    finally:
        team.close()


def test_teams_beside_each_other() -> None:
    """Two models in one process, each stepped by a thread of its own."""
    counters, teams = [Counter(16), Counter(16)], [make_team(2), make_team(3)]

    def work(i: int) -> None:
        for _ in range(200):
            teams[i].run(counters[i].tape)

    workers = [threading.Thread(target=work, args=(i,)) for i in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(timeout=60)
    assert all((c.rows == 200).all() for c in counters)
    for team in teams:
        team.close()


def test_other_python_threads_go_on_during_a_step() -> None:
    """A step holds no lock of Python's: a window stays alive while the model computes."""
    counter, team = Counter(200_000), make_team(1)
    ticks, stop = 0, threading.Event()

    def tick() -> None:
        nonlocal ticks
        while not stop.is_set():
            ticks += 1
            time.sleep(0.0005)

    worker = threading.Thread(target=tick)
    worker.start()
    longest = 0
    for _ in range(20):
        before, start = ticks, time.perf_counter()
        team.run(counter.tape)
        if time.perf_counter() - start > 0.003:
            longest = max(longest, ticks - before)
    stop.set()
    worker.join()
    team.close()
    assert longest > 0
