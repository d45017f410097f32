"""A tape: op records grouped into stages, written once and walked every step.

`TapeWriter` takes ops in order and starts a new stage where one depends on the stage so far. The number of an op's chunks
may depend on the batch, so it is a row of coefficients, and `Tape.resize` is one small matrix product per step.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from . import slots
from .memory import address, aligned


class Tape:
    """records: i64[ops, OP_WORDS]; stages: i64[stages, STAGE_WORDS], at address `start`; names: the ops' kernels, in order."""

    def __init__(
        self, records: NDArray[np.int64], first: NDArray[np.int64], coefficients: NDArray[np.int64], names: list[str]
    ) -> None:
        self.records = aligned(records.nbytes).view(np.int64).reshape(records.shape)
        self.records[:] = records
        self.stages = aligned(16 * len(first)).view(np.int64).reshape(-1, slots.STAGE_WORDS)
        self.stages[:, slots.FIRST_OP] = address(self.records) + first * 8 * slots.OP_WORDS
        self.names, self.start = names, address(self.stages)
        self._first, self._coefficients = first, coefficients
        self._sizes: tuple[int, ...] | None = None

    def resize(self, sizes: tuple[int, ...]) -> None:
        """Set every op's chunks for a batch; `sizes` are the factors named when the tape was written, 1 first."""
        if sizes != self._sizes:
            self.records[:, slots.CALLS] = calls = self._coefficients @ np.array(sizes, np.int64)
            self.records[:, slots.CHUNKS] = chunks = -(-calls // self.records[:, slots.EACH])
            self.stages[:, slots.STAGE_CHUNKS] = np.add.reduceat(chunks, self._first)
            self._sizes = sizes


class TapeWriter:
    """Collects ops. sizes: names of what chunk counts may be multiples of, apart from 1."""

    def __init__(self, kernels: Mapping[str, int], sizes: Sequence[str]) -> None:
        self._kernels, self._sizes = kernels, list(sizes)
        self._records: list[list[int]] = []
        self._coefficients: list[list[int]] = []
        self._names: list[str] = []
        self._first: list[int] = []
        self._read: set[int] = set()
        self._written: set[int] = set()

    def op(
        self,
        kernel: str,
        arguments: Sequence[int],
        chunks: int,
        of: str | None,
        reads: Iterable[int],
        writes: Iterable[int],
        each: int = 1,
    ) -> int:
        """Append an op of `chunks` (times the size named `of`) chunks, or as many calls of which a chunk makes `each`.

        reads, writes: ids of what it touches.

        -> its index on the tape.
        """
        assert len(arguments) <= slots.OP_WORDS - slots.ARG
        read, written = set(reads), set(writes)
        if not self._first or written & (self._read | self._written) or read & self._written:
            self._first.append(len(self._records))
            self._read, self._written = set(), set()
        self._read |= read
        self._written |= written
        padding = slots.OP_WORDS - slots.ARG - len(arguments)
        self._records.append([self._kernels[kernel], 0, 0, each, *arguments, *[0] * padding])
        self._coefficients.append([chunks * (of == name) for name in [None, *self._sizes]])
        self._names.append(kernel)
        return len(self._records) - 1

    def stages(self) -> list[list[int]]:
        """The ops of each stage so far."""
        return [list(range(*ends)) for ends in itertools.pairwise([*self._first, len(self._records)])]

    def set_op(self, op: int, arguments: Mapping[int, int], chunks: int) -> None:
        """Change arguments of an op, and its chunks to a fixed number: what can be told once its stage is known."""
        for i, value in arguments.items():
            self._records[op][slots.ARG + i] = value
        self._coefficients[op] = [chunks, *[0] * len(self._sizes)]

    def finish(self) -> Tape:
        """The tape of all ops so far."""
        return Tape(
            np.array(self._records, np.int64),
            np.array(self._first, np.int64),
            np.array(self._coefficients, np.int64),
            self._names,
        )
