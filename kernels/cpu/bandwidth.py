"""Measure how fast this machine reads memory: what a decode step is compared with."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from . import objects, threads
from .memory import address, aligned
from .tape import TapeWriter

_SIZE_BYTES = 256 << 20  # far beyond any cache of a laptop
_CHUNK_BYTES = 64 << 10


class Reader:
    """A large buffer and the tape that reads it, on a team of threads. The kernel is `read_memory`."""

    def __init__(self, team: threads.Threads, kernels: Mapping[str, int], size_bytes: int = _SIZE_BYTES) -> None:
        chunks = size_bytes // _CHUNK_BYTES
        self._size, self._team = chunks * _CHUNK_BYTES, team
        self._memory, self._out = aligned(self._size), aligned(128 * chunks)
        self._memory[::4096] = 1  # pages that were never written all share one page of zeros
        writer = TapeWriter(kernels, [])
        writer.op("read_memory", [address(self._memory), _CHUNK_BYTES, address(self._out)], chunks, None, [], [])
        self._tape = writer.finish()
        self._tape.resize((1,))

    def rate(self) -> float:
        """Bytes per second of one pass."""
        start = time.perf_counter()
        self._team.run(self._tape)
        seconds = time.perf_counter() - start
        assert np.isfinite(self._out.view(np.float32)).all()
        return self._size / seconds


def read_bandwidth(num_threads: int, objects_folder: Path, repeats: int = 7) -> float:
    """Bytes per second that `num_threads` threads read from memory together: the median of `repeats` passes."""
    kernels = objects.addresses([*threads.KERNELS, "read_memory"], objects.choose_level().level, objects_folder)
    team = threads.Threads(num_threads, kernels, 4096)
    try:
        reader = Reader(team, kernels)
        reader.rate()
        return statistics.median(reader.rate() for _ in range(repeats))
    finally:
        team.close()
