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
from .kernels.vocabulary import Vocabulary


class Backend(Protocol):
    """What runs a program.

    run: Batch -> f32[N, V], one row per logit row, valid until the next call. It may have a `vocabulary`, which scans rows.
    """

    @property
    def vocab_size(self) -> int: ...

    def run(self, batch: Batch) -> NDArray[np.float32]: ...

    def close(self) -> None: ...


class Runner:
    """Runs batches on a backend and owns both it and the cache that it writes to."""

    def __init__(self, backend: Backend, cache: KVCache) -> None:
        self.backend = backend
        self.cache = cache

    @property
    def vocab_size(self) -> int:
        """Token ids are 0 to vocab_size - 1."""
        return self.backend.vocab_size

    @property
    def vocabulary(self) -> Vocabulary | None:
        """What the backend scans rows of logits with, None if it has nothing of its own."""
        found: Vocabulary | None = getattr(self.backend, "vocabulary", None)
        return found

    def forward(self, batch: Batch) -> NDArray[np.float32]:
        """Return logits f32[N, V] of the batch's logit rows: a view, valid until the next call."""
        logits = self.backend.run(batch)
        expected = (len(batch.logit_rows), self.vocab_size)
        assert logits.shape == expected and logits.dtype == np.float32, f"logits {logits.shape}, not {expected}"
        return logits

    def close(self) -> None:
        """Stop the backend, then free the cache, in this order: threads may still read it."""
        self.backend.close()
        self.cache.free()
