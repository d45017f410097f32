"""Where ops with a state find a batch's sequences: a run is the adjacent tokens of one, with the records it reads and writes.

Words: slots.py. Records: StateLayer and Batch in ../ops.py. Next hop: the kernels, such as short_conv.py.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ..ops import NO_RECORD, Batch
from . import slots
from .memory import address
from .tasks import runs


class Records(Protocol):
    """Where states lie: layer l of record r at base + r * record_bytes + offsets[l], aligned to 64 bytes."""

    @property
    def base(self) -> int: ...

    @property
    def record_bytes(self) -> int: ...

    @property
    def offsets(self) -> tuple[int, ...]: ...


class Runs:
    """The runs of the batch at hand, in the context of all threads. records: None for a program without state layers."""

    def __init__(self, records: Records | None, max_tokens: int, ctx: NDArray[np.int64]) -> None:
        self._records = records
        self._runs = np.zeros((max_tokens, slots.RUN_WORDS), np.int64)
        self._saves = np.zeros(max_tokens, np.int64)
        self._views = self._runs.data, self._saves.data
        ctx[slots.RUNS], ctx[slots.SAVES] = address(self._runs), address(self._saves)

    def take(self, batch: Batch) -> int:
        """Put a batch's runs where kernels look for them. -> how many there are."""
        if self._records is None:
            return 0
        base, nbytes = self._records.base, self._records.record_bytes
        at, saves = self._views
        if len(batch.token_ids) == 1:  # a decode step: NumPy's ways of doing this would be most of what Python costs
            at[0, slots.RUN_FIRST], at[0, slots.RUN_TOKENS] = 0, 1
            at[0, slots.RUN_READ] = base + int(batch.state_reads[int(batch.sequences[0])]) * nbytes
            saves[0] = base + int(batch.state_writes[0]) * nbytes
            return 1
        found = runs(batch.sequences)
        for run, (first, end) in enumerate(found):
            at[run, slots.RUN_FIRST], at[run, slots.RUN_TOKENS] = first, end - first
            at[run, slots.RUN_READ] = base + int(batch.state_reads[int(batch.sequences[first])]) * nbytes
        writes = batch.state_writes.astype(np.int64)
        self._saves[: len(writes)] = np.where(writes == NO_RECORD, 0, base + writes * nbytes)
        return len(found)
