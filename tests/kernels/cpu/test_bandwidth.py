"""The yardstick reads all of its memory once, in one stream or in two, and says which was faster."""

from __future__ import annotations

import itertools

import cpu_kernels as cpu
import numpy as np
import pytest

from edgellm.kernels.cpu import bandwidth, isa, objects
from edgellm.kernels.cpu.memory import address, aligned
from edgellm.kernels.cpu.slots import ARG, OP_WORDS
from edgellm.kernels.cpu.threads import Threads, run_chunk


@pytest.mark.parametrize("streams", bandwidth._WAYS)
@pytest.mark.parametrize("chunk", [0, 2])
def test_every_value_is_read_once(streams: int, chunk: int) -> None:
    size = bandwidth._CHUNK_BYTES
    memory, out = aligned(3 * size), aligned(3 * 128)
    values = memory.view(np.float32)
    values[:] = np.random.default_rng(0).integers(0, 100, len(values))
    record = np.zeros(OP_WORDS, np.int64)
    record[ARG : ARG + 5] = address(memory), size, address(out), *bandwidth._WAYS[streams]
    kernels = objects.addresses(["read_memory"], isa.choose().level, cpu.paths.home() / "kernels")
    run_chunk(kernels["read_memory"], record, chunk=chunk)
    sums = out.view(np.float32).reshape(3, 32)
    # Integers below 2**24 add up exactly, in any order.
    assert np.array_equal(sums[chunk].sum(), values.reshape(3, -1)[chunk].sum(dtype=np.float64))
    assert not sums[np.arange(3) != chunk].any()


def test_a_reading_is_a_median_with_its_extremes() -> None:
    reader = bandwidth.Reader(cpu.paths.home() / "kernels", size_bytes=1 << 20)
    assert reader.nbytes == 1 << 20
    reading = reader.read(2, repeats=3)
    assert reading.num_threads == 2 and reading.streams in (1, 2)
    assert 0 < reading.low <= reading.median <= reading.high


def test_one_pass_of_another_team(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = cpu.paths.home() / "kernels"
    reader = bandwidth.Reader(folder, size_bytes=1 << 20)
    team = Threads(2, objects.addresses(bandwidth.KERNELS, objects.choose_level().level, folder), 4096)
    try:
        assert {s: len(rates) for s, rates in reader.rates(team, 3).items()} == {1: 3, 2: 3}
        clock = itertools.count(0, 2)
        monkeypatch.setattr(bandwidth.time, "perf_counter", lambda: next(clock))
        assert reader.rate(team, 2) == (1 << 20) / 2
        reader._memory.view(np.float32)[77] = np.nan
        with pytest.raises(AssertionError):
            reader.rates(team, 1)
    finally:
        team.close()


def test_the_better_number_of_streams_has_the_higher_median() -> None:
    assert bandwidth.best_streams({1: [3, 3, 9], 2: [1, 4, 4]}) == 2
