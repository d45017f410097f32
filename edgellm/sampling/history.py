"""The ids of prompt and answer as an array that grows, so that a long context is not converted anew for each token.

Knows ids only. Next hops: `penalties.py`, `dry.py`.
"""

from __future__ import annotations

from collections.abc import Sequence as ListOf

import numpy as np
from numpy.typing import NDArray


class History:
    """A copy of a growing list of ids. Whoever shortens that list calls `take_back`.

    ids: i64[n].
    """

    def __init__(self) -> None:
        self._room = np.empty(256, np.int64)
        self._count = 0

    @property
    def ids(self) -> NDArray[np.int64]:
        """Those that are known so far."""
        return self._room[: self._count]

    def extend(self, token_ids: ListOf[int]) -> NDArray[np.int64]:
        """Take over what is new in token_ids, of which the first are those known. -> the new ones."""
        count, before = len(token_ids), self._count
        if count > len(self._room):
            self._room = np.concatenate([self.ids, np.empty(count + count // 2 - before, np.int64)])
        self._room[before:count] = token_ids[before:]
        self._count = count
        return self._room[before:count]

    def take_back(self, count: int) -> None:
        """Forget what stands behind the first `count`."""
        self._count = min(self._count, count)
