"""Measure how fast this machine reads memory: what a decode step is compared with."""

from __future__ import annotations

import statistics
import time
from pathlib import Path

import numpy as np

from . import objects, threads
from .memory import address, aligned
from .tape import TapeWriter

_SIZE_BYTES = 256 << 20  # far beyond any cache of a laptop
_CHUNK_BYTES = 64 << 10


def read_bandwidth(num_threads: int, objects_folder: Path, repeats: int = 7) -> float:
    """Bytes per second that `num_threads` threads read from memory together: the median of `repeats` passes."""
    kernels = objects.addresses([*threads.KERNELS, "read_memory"], objects.choose_level().level, objects_folder)
    chunks = _SIZE_BYTES // _CHUNK_BYTES
    memory, out = aligned(_SIZE_BYTES), aligned(128 * chunks)
    memory[::4096] = 1  # pages that were never written all share one page of zeros
    writer = TapeWriter(kernels, [])
    writer.op("read_memory", [address(memory), _CHUNK_BYTES, address(out)], chunks, None, [], [])
    tape = writer.finish()
    tape.resize((1,))
    team = threads.Threads(num_threads, kernels, 4096)
    try:
        times = []
        for _ in range(repeats + 1):
            start = time.perf_counter()
            team.run(tape)
            times.append(time.perf_counter() - start)
    finally:
        team.close()
    assert np.isfinite(out.view(np.float32)).all()
    return _SIZE_BYTES / statistics.median(times[1:])
