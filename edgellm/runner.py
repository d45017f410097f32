"""The narrow place between the engine and a backend: one batch goes down, logits come up.

Knows no architecture and no sequence. A backend is anything with `run`, `vocab_size` and `close`. Next hop: the
program's backend in `kernels`.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from .cache.kv import KVCache
from .kernels.ops import Batch


class Backend(Protocol):
    """What runs a program.

    run: Batch -> f32[N, V], one row per logit row, valid until the next call.
    hidden: f32[M, E], one row per hidden row of the last run's batch.
    abort: makes the run that is on, or else the next, raise Aborted soon; any thread may call it.
    """

    @property
    def vocab_size(self) -> int: ...

    @property
    def hidden(self) -> NDArray[np.float32]: ...

    def run(self, batch: Batch) -> NDArray[np.float32]: ...

    def abort(self) -> None: ...

    def close(self) -> None: ...


class _Closed:
    """Stands where a backend was, and holds no memory."""

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size = vocab_size
        self.hidden = np.zeros((0, 0), np.float32)

    def run(self, batch: Batch) -> NDArray[np.float32]:
        raise AssertionError("a closed model was asked to compute")

    def abort(self) -> None:
        pass

    def close(self) -> None:
        pass


class Runner:
    """Runs batches on a backend and owns both it and the cache that it writes to."""

    def __init__(self, backend: Backend, cache: KVCache) -> None:
        self.backend: Backend = backend
        self.cache = cache

    @property
    def vocab_size(self) -> int:
        """Token ids are 0 to vocab_size - 1."""
        return self.backend.vocab_size

    def forward(self, batch: Batch) -> NDArray[np.float32]:
        """Return logits f32[N, V] of the batch's logit rows: a view, valid until the next call. Raises Aborted."""
        logits = self.backend.run(batch)
        expected = (len(batch.logit_rows), self.vocab_size)
        assert logits.shape == expected and logits.dtype == np.float32, f"logits {logits.shape}, not {expected}"
        return logits

    @property
    def hidden(self) -> NDArray[np.float32]:
        """Hidden states f32[M, E] of the last batch's hidden rows."""
        return self.backend.hidden

    def abort(self) -> None:
        """Make the `forward` that is on, or else the next, raise Aborted soon; any thread may call it."""
        self.backend.abort()

    def close(self) -> None:
        """Stop the backend, then free the cache, in this order: threads may still read it. The weights go with it."""
        self.backend.close()
        self.cache.free()
        self.backend = _Closed(self.backend.vocab_size)
