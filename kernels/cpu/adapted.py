"""Batches whose sequences use adapters: a program, and tapes, for each set of adapters that some batch needs.

What a batch does not use costs it nothing: without any adapter the tapes are those of the model alone. A row that does not
use an adapter of its batch gets the same bits as alone. Next hops: `../adapters.py` writes the programs, `backend.py` runs them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..adapters import Adapters
from ..ops import Batch, Program
from . import lower, slots, weights
from .memory import address

if TYPE_CHECKING:
    from .backend import Cache, CpuBackend

MOST_KEPT = 4
"""Sets of adapters whose buffers are kept."""


class AdaptedRuns:
    """Runs batches with adapters on a backend's weights, threads and cache. source: has the adapters' matrices."""

    def __init__(self, backend: CpuBackend, cache: Cache, adapters: Adapters, source: weights.Source) -> None:
        self._backend, self._cache, self._adapters = backend, cache, adapters
        alone = adapters.matrices_alone(backend.program)
        loaded = weights.load_weights(alone, source, True, backend._kernels, backend.threads, None)
        backend.weights.matrices.update(loaded.matrices)
        self._scales = np.zeros((len(backend._positions), slots.MAX_ADAPTERS), np.float32)
        backend.threads.ctx[slots.ADAPTER_SCALES] = address(self._scales)
        self._twins: dict[tuple[int, ...], CpuBackend] = {}

    def run(self, batch: Batch) -> NDArray[np.float32]:
        """Like the backend's run. batch.adapter_scales: f32[A, T]."""
        count, tokens = batch.adapter_scales.shape
        self._scales[:tokens, :count] = batch.adapter_scales.T
        twin = self._twin(tuple(np.flatnonzero(batch.adapter_scales.any(axis=1)).tolist()))
        logits = twin._run(batch)
        self._backend.hidden = twin.hidden
        return logits

    def _twin(self, active: tuple[int, ...]) -> CpuBackend:
        """The backend that runs with these adapters; the sets used last are kept."""
        twin = self._twins.pop(active, None)
        if twin is None:
            if len(self._twins) >= MOST_KEPT:
                del self._twins[next(iter(self._twins))]
            twin = self._backend.twin(self._adapters.beside(self._backend.program, active), self._cache)
        self._twins[active] = twin
        return twin


def kernel_names(adapters: Adapters | None, program: Program, source: weights.Source) -> list[str]:
    """Names of the kernels that adapters take beside the model's."""
    if adapters is None:
        return []
    needed = lower.kernel_names(adapters.beside(program))
    return [*needed, *weights.kernel_names(adapters.matrices_alone(program), source)]


def scratch_bytes(adapters: Adapters | None, program: Program, source: weights.Source) -> int:
    """Scratch that the adapters' matrices need."""
    return 0 if adapters is None else weights.scratch_bytes(adapters.matrices_alone(program), source, True)
