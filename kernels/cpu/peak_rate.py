"""Measure how fast this machine multiplies and adds small integers: what prefill is compared with.

`multiply_add` is the pair of instructions that collects integer dots, `multiply` its first half alone, where the level
has two (AVX2: vpmaddubsw and vpaddw). Knows no format. The kernels are in `peak.py`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from .isa import Level
from .memory import address, aligned
from .tape import TapeWriter
from .threads import Threads

ACCUMULATORS = 12
"""Independent sums: enough to hide the latency of a multiplication, few enough for sixteen registers."""
OPERATIONS = 2 * 32 * ACCUMULATORS
"""Operations of a step: a vector is 32 multiply-adds of bytes on every level, and each counts two."""
_STEPS = 10_000  # of a chunk: some 20 microseconds
_CHUNKS = 128  # per thread, so that all of them finish together


def peak_kernels(level: Level) -> list[str]:
    """Names of the kernels that mean something on this level, the one to compare with first."""
    return ["peak_multiply_add", "peak_multiply"] if level.name == "avx2" else ["peak_multiply_add"]


class Peak:
    """One of these kernels, ready to run on a team of threads. steps: of a chunk."""

    def __init__(self, team: Threads, kernels: Mapping[str, int], name: str, steps: int = _STEPS) -> None:
        chunks = team.count * _CHUNKS
        self._operations, self._team = OPERATIONS * steps * chunks, team
        self._memory = aligned(128 * chunks)
        writer = TapeWriter(kernels, [])
        writer.op(name, [steps, address(self._memory)], chunks, None, [], [])
        self._tape = writer.finish()
        self._tape.resize((1,))

    def rate(self) -> float:
        """Operations per second of one pass."""
        start = time.perf_counter()
        self._team.run(self._tape)
        return self._operations / (time.perf_counter() - start)
