"""Who holds which block: ids, reference counts, and which blocks nobody but the prefix tree wants. Nothing else.

Knows no array, no layer and no sequence, so it is tested without a model. Next hops: `tree.py`, which keeps blocks for
later, and `groups.py`, which hands them to sequences.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict

from ..errors import ResourceError

NO_BLOCK = -1


class BlockPool:
    """Block ids 0 to num_blocks - 1. The lowest free id is handed out first, so memory never used is never touched.

    Only blocks in use and blocks given back cost memory here, so a pool of a billion blocks is as cheap as a small one.

    idle: blocks that only the tree holds, the least recently used first: what can be had back.
    """

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self.idle: OrderedDict[int, None] = OrderedDict()
        self._counts: dict[int, int] = {}
        self._kept: set[int] = set()
        self._returned: list[int] = []  # a heap of ids below _next_fresh that are free again
        self._next_fresh = 0

    @property
    def num_free(self) -> int:
        """Blocks that nobody holds."""
        return self.num_blocks - len(self._counts)

    def count(self, block: int) -> int:
        """How many holders `block` has; 0 when it is free."""
        return self._counts.get(block, 0)

    def is_kept(self, block: int) -> bool:
        """True if the tree is one of the holders."""
        return block in self._kept

    def allocate(self) -> int:
        """Take the lowest free block, with one holder. Raises ResourceError when none is left."""
        if self._returned:
            block = heapq.heappop(self._returned)
        elif self._next_fresh < self.num_blocks:
            block = self._next_fresh
            self._next_fresh += 1
        else:
            raise ResourceError(
                f"all {self.num_blocks} cache blocks are in use; end a sequence or raise max_sequences or the cache's "
                f"memory (--cache-memory)"
            )
        self._counts[block] = 1
        return block

    def share(self, block: int) -> None:
        """Add a holder to a block in use."""
        assert block in self._counts, f"block {block} is free and cannot be shared"
        self._counts[block] += 1
        self.idle.pop(block, None)

    def release(self, block: int) -> None:
        """Take one holder away; the last one frees the block, the last but the tree leaves it idle, most recently used."""
        assert block in self._counts, f"block {block} is free already"
        count = self._counts[block] - 1
        self._counts[block] = count
        if count == 0:
            assert block not in self._kept, f"block {block} is kept: the tree must forget it"
            del self._counts[block]
            heapq.heappush(self._returned, block)
        elif count == 1 and block in self._kept:
            self.idle[block] = None

    def keep(self, block: int) -> None:
        """Make the tree a holder of a block in use, until `forget`."""
        assert block not in self._kept, f"block {block} is kept already"
        self.share(block)
        self._kept.add(block)

    def forget(self, block: int) -> None:
        """Take the tree's hold away."""
        self._kept.remove(block)
        self.idle.pop(block, None)
        self.release(block)
