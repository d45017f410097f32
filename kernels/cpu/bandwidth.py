"""Measure how fast this machine reads memory: what a decode step is compared with.

The yardstick is the best plain reader: a thread that follows one stream, or two, whichever is faster on this machine.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from . import objects, threads
from .memory import SLACK, address, aligned, arena
from .tape import Tape, TapeWriter

KERNELS = (*threads.KERNELS, "read_memory")
SIZE_BYTES = 256 << 20  # far beyond any cache of a laptop
_CHUNK_BYTES = 64 << 10
# streams of a thread: (bytes from one to the other, bytes to go on after each step); see read_memory.py
_WAYS = {1: (256, 512), 2: (_CHUNK_BYTES // 2, 256)}


@dataclass(frozen=True, slots=True)
class Reading:
    """Bytes per second that some threads read together: median and extremes, by the better number of streams a thread."""

    num_threads: int
    streams: int
    median: float
    low: float
    high: float


class Reader:
    """A large buffer, and kernels that read it. Raises ResourceError if the kernels can be neither found nor compiled."""

    def __init__(
        self, objects_folder: Path, size_bytes: int = SIZE_BYTES, progress: objects.Progress | None = None
    ) -> None:
        self._kernels = objects.addresses(KERNELS, objects.choose_level().level, objects_folder, progress)
        self._chunks = max(1, size_bytes // _CHUNK_BYTES)
        self.nbytes = self._chunks * _CHUNK_BYTES
        self._memory, self._out = arena(self.nbytes + SLACK), aligned(128 * self._chunks)
        self._memory[::4096] = 1  # pages that were never written all share one page of zeros
        self._tapes = {streams: self._tape(*way) for streams, way in _WAYS.items()}

    def _tape(self, apart: int, step: int) -> Tape:
        writer = TapeWriter(self._kernels, [])
        arguments = [address(self._memory), _CHUNK_BYTES, address(self._out), apart, step]
        writer.op("read_memory", arguments, self._chunks, None, [], [])
        tape = writer.finish()
        tape.resize((1,))
        return tape

    def rate(self, team: threads.Threads, streams: int) -> float:
        """Bytes per second of one pass by a team, each thread following so many streams."""
        start = time.perf_counter()
        team.run(self._tapes[streams])
        return self.nbytes / (time.perf_counter() - start)

    def rates(self, team: threads.Threads, repeats: int) -> dict[int, list[float]]:
        """Read the buffer `repeats` times in each way, in turn, so that both see the same machine. -> by streams."""
        passes = [{streams: self.rate(team, streams) for streams in _WAYS} for _ in range(repeats + 1)]
        assert np.isfinite(self._out.view(np.float32)).all()
        return {streams: [p[streams] for p in passes[1:]] for streams in _WAYS}  # threads woke up in the first

    def read(self, num_threads: int, repeats: int = 7) -> Reading:
        """Measure with a team of its own, by the better number of streams."""
        team = threads.Threads(num_threads, self._kernels, 4096)
        try:
            rates = self.rates(team, repeats)
        finally:
            team.close()
        best = best_streams(rates)
        return Reading(num_threads, best, statistics.median(rates[best]), min(rates[best]), max(rates[best]))


def best_streams(rates: Mapping[int, list[float]]) -> int:
    """The number of streams whose median is the highest."""
    return max(rates, key=lambda streams: statistics.median(rates[streams]))


def read_bandwidth(num_threads: int, objects_folder: Path, repeats: int = 7) -> float:
    """Bytes per second that `num_threads` threads read from memory together: the median of the best plain reader."""
    return Reader(objects_folder).read(num_threads, repeats).median
