"""The yardstick of prefill does the work that it is counted for: every multiply-add is done."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import cpu_kernels as cpu
import numpy as np
import pytest

from edgellm import paths
from edgellm.kernels.cpu import objects, peak_rate, threads
from edgellm.kernels.cpu.memory import address, aligned
from edgellm.kernels.cpu.slots import ARG, OP_WORDS


@pytest.fixture
def two_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every measurement take two seconds."""
    clock = itertools.count(0, 2)
    monkeypatch.setattr(peak_rate.time, "perf_counter", lambda: next(clock))


@pytest.fixture(scope="module")
def team() -> Iterator[threads.Threads]:
    team = threads.Threads(2, get_kernels(), 4096)
    yield team
    team.close()


def get_kernels() -> dict[str, int]:
    level = objects.choose_level().level
    names = [*threads.KERNELS, *peak_rate.peak_kernels(level)]
    return objects.addresses(names, level, paths.home() / "kernels")


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
