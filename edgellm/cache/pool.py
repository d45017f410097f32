"""Who owns which block: ids and reference counts, nothing else.

Knows no array, no layer and no sequence, so it is tested without a model. Next hop: `kv.py`, which gives blocks a place
in memory.
"""

from __future__ import annotations

import heapq

from ..errors import ResourceError


class BlockPool:
    """Block ids 0 to num_blocks - 1. The lowest free id is handed out first, so memory never used is never touched.

    Only blocks in use and blocks given back cost memory here, so a pool of a billion blocks is as cheap as a small one.
    """

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self._counts: dict[int, int] = {}
        self._returned: list[int] = []  # a heap of ids below _next_fresh that are free again
        self._next_fresh = 0

    @property
    def num_free(self) -> int:
        """Blocks that nobody holds."""
        return self.num_blocks - len(self._counts)

    def count(self, block: int) -> int:
        """How many holders `block` has; 0 when it is free."""
        return self._counts.get(block, 0)

    def allocate(self) -> int:
        """Take the lowest free block, with one holder. Raises ResourceError when none is left."""
        if self._returned:
            block = heapq.heappop(self._returned)
        elif self._next_fresh < self.num_blocks:
            block = self._next_fresh
            self._next_fresh += 1
        else:
            raise ResourceError(f"all {self.num_blocks} cache blocks are in use; end a sequence or raise max_sequences")
        self._counts[block] = 1
        return block

    def share(self, block: int) -> None:
        """Add a holder to a block in use."""
        assert block in self._counts, f"block {block} is free and cannot be shared"
        self._counts[block] += 1

    def release(self, block: int) -> None:
        """Take one holder away; the last one frees the block."""
        assert block in self._counts, f"block {block} is free already"
        self._counts[block] -= 1
        if self._counts[block] == 0:
            del self._counts[block]
            heapq.heappush(self._returned, block)
