"""Runner: one batch down, logits up, and the order of closing."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from edgellm.cache.kv import KVCache
from edgellm.errors import ResourceError
from edgellm.kernels.ops import Batch, CacheLayer
from edgellm.runner import Runner


class FixedBackend:
    vocab_size = 4

    def __init__(self, cache: KVCache, logits: NDArray[np.float32]) -> None:
        self.cache, self.logits = cache, logits
        self.closed_with_memory = False

    def run(self, batch: Batch) -> NDArray[np.float32]:
        return self.logits

    def close(self) -> None:
        self.closed_with_memory = self.cache.address(0)[0] > 0


BATCH = Batch(
    np.zeros(3, np.int32),
    np.arange(3),
    np.zeros(3, np.int32),
    (np.zeros((1, 1), np.int32),),
    np.array([0, 2], np.int32),
)


def test_logits_come_back_as_they_are_and_a_wrong_shape_is_noticed() -> None:
    cache = KVCache([CacheLayer(1, 32)], 64)
    logits = np.ones((2, 4), np.float32)
    assert Runner(FixedBackend(cache, logits), cache).forward(BATCH) is logits
    with pytest.raises(AssertionError, match=r"\(1, 4\), not \(2, 4\)"):
        Runner(FixedBackend(cache, logits[:1]), cache).forward(BATCH)


def test_the_backend_is_closed_before_the_cache_is_freed() -> None:
    cache = KVCache([CacheLayer(1, 32)], 64)
    backend = FixedBackend(cache, np.ones((2, 4), np.float32))
    Runner(backend, cache).close()
    assert backend.closed_with_memory
    with pytest.raises(ResourceError):
        cache.address(0)
