"""The yardsticks do the work that they are counted for: every byte read once, every multiply-add done."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import cpu_kernels as cpu
import numpy as np
import pytest

from edgellm import paths
from edgellm.kernels.cpu import bandwidth, objects, peak_rate, threads
from edgellm.kernels.cpu.memory import address, aligned
from edgellm.kernels.cpu.slots import ARG, OP_WORDS

NAMES = [*threads.KERNELS, "read_memory"]


@pytest.fixture
def two_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every measurement take two seconds."""
    clock = itertools.count(0, 2)
    for module in (bandwidth, peak_rate):
        monkeypatch.setattr(module.time, "perf_counter", lambda: next(clock))


@pytest.fixture(scope="module")
def team() -> Iterator[threads.Threads]:
    team = threads.Threads(2, get_kernels(), 4096)
    yield team
    team.close()


def get_kernels() -> dict[str, int]:
    level = objects.choose_level().level
    names = [*NAMES, *peak_rate.peak_kernels(level)]
    return objects.addresses(names, level, paths.home() / "kernels")


def test_the_reader_reads_every_byte_once(team: threads.Threads, two_seconds: None) -> None:
    reader = bandwidth.Reader(team, get_kernels(), size_bytes=5 << 16)
    reader._memory.view(np.float32)[:] = 1
    assert reader.rate() == (5 << 16) / 2
    assert (reader._out.view(np.float32) == (1 << 16) / 128).all()


def test_a_wrong_number_in_memory_is_noticed(team: threads.Threads) -> None:
    reader = bandwidth.Reader(team, get_kernels(), size_bytes=1 << 16)
    reader._memory.view(np.float32)[77] = np.nan
    with pytest.raises(AssertionError):
        reader.rate()


@pytest.mark.parametrize("steps", [0, 1, 5])
@pytest.mark.parametrize("level_name", cpu.LEVEL_NAMES)
def test_each_step_multiplies_and_adds_on_every_sum(level_name: str, steps: int) -> None:
    level = cpu.get_level(level_name)
    kernels = objects.addresses(peak_rate.peak_kernels(level), level, paths.home() / "kernels")
    record, memory = aligned(8 * OP_WORDS).view(np.int64), aligned(128)
    record[ARG : ARG + 2] = steps, address(memory)
    started = sum(range(peak_rate.ACCUMULATORS))
    for name, kernel in kernels.items():
        memory[:] = 1
        threads.run_chunk(kernel, record)
        # All bytes are one. On AVX2 a lane is the sum of two products, elsewhere of four.
        lane = np.int16 if level_name == "avx2" else np.int32
        products = 0 if name == "peak_multiply" else np.dtype(lane).itemsize * steps * peak_rate.ACCUMULATORS
        assert (memory[:32].view(lane) == started + products).all()


def test_operations_are_counted(team: threads.Threads, two_seconds: None) -> None:
    name = peak_rate.peak_kernels(objects.choose_level().level)[0]
    peak = peak_rate.Peak(team, get_kernels(), name, steps=3)
    chunks = 2 * peak_rate._CHUNKS
    assert peak.rate() == 3 * chunks * 12 * 32 * 2 / 2


def test_bandwidth_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bandwidth, "_SIZE_BYTES", 1 << 20)
    assert bandwidth.read_bandwidth(1, paths.home() / "kernels", repeats=3) > 0
