"""Block tables: which block holds which tile of which slot, for layers with one reach.

A tile is 64 positions of a sequence. Layers that see all keep every tile; layers with a window keep the tiles of the first
tokens that stay in reach, and a ring of columns in which a tile takes the place of the one that fell out of reach long
before. So a table is as wide for ever as it is at the start. Knows no bytes. Next hops: `pool.py`, `kv.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from ..kernels.cache_layout import BLOCK_SIZE
from ..kernels.ops import CacheLayer
from .pool import NO_BLOCK, BlockPool


def num_tiles(num_tokens: int) -> int:
    """Tiles that `num_tokens` positions from 0 on touch."""
    return -(-num_tokens // BLOCK_SIZE)


def ring_blocks(window: int, prefill_chunk: int) -> int:
    """Tiles that window + prefill_chunk tokens can touch, at any alignment.

    A chunk is written before it is read, so the oldest token in reach of the chunk's first must survive its last.
    """
    return (window + prefill_chunk + BLOCK_SIZE - 2) // BLOCK_SIZE + 1


class Reach:
    """What a token of a group's layers sees, and the columns that this takes.

    window, num_sink_tokens: as in CacheLayer. kept, ring: tile t is in column t if t < kept, else kept + (t - kept) % ring.
    columns: blocks that one sequence comes to hold.
    """

    def __init__(self, window: int | None, num_sink_tokens: int, max_context: int | None, prefill_chunk: int) -> None:
        self.window = window
        self.num_sink_tokens = num_sink_tokens
        self.kept, self.ring = 0, 1
        self.columns = 0 if max_context is None else num_tiles(max_context)
        if window is not None:
            self.kept, self.ring = num_tiles(num_sink_tokens), ring_blocks(window, prefill_chunk)
            if max_context is None or self.kept + self.ring < self.columns:
                self.columns = self.kept + self.ring
                return
        assert max_context is not None, "a length without limit needs a window in every layer"
        self.kept, self.ring = self.columns, 1  # all of it fits: nothing is dropped, and no column is ever shared

    def needed_tiles(self, num_tokens: int) -> list[range]:
        """The tiles in which position `num_tokens` sees something before itself."""
        end = num_tiles(num_tokens)
        if self.window is None:
            return [range(end)]
        low = max(0, num_tokens - self.window + 1)
        first = low // BLOCK_SIZE if low < num_tokens else end
        return [range(min(first, num_tiles(self.num_sink_tokens))), range(first, end)]


def list_reaches(layers: Sequence[CacheLayer], max_context: int | None, prefill_chunk: int) -> list[Reach]:
    """One Reach for each of layer_groups' groups."""
    keys = dict.fromkeys((layer.window, layer.num_sink_tokens) for layer in layers)
    return [Reach(window, sinks, max_context, prefill_chunk) for window, sinks in keys]


def layer_groups(layers: Sequence[CacheLayer]) -> tuple[int, ...]:
    """The group of each layer: those with the same window and sink tokens are together, in order of appearance."""
    keys = list(dict.fromkeys((layer.window, layer.num_sink_tokens) for layer in layers))
    return tuple(keys.index((layer.window, layer.num_sink_tokens)) for layer in layers)


class CacheGroup:
    """The blocks that each slot holds in layers of one reach.

    table: i32[max_sequences, columns], what attention reads; NO_BLOCK where nothing is stored.
    evict: frees a block of the pool that only the prefix tree holds -> False if there is none. copy: from block, to block.
    forget: makes the prefix tree let go of a block.
    """

    def __init__(self, reach: Reach, pool: BlockPool, max_sequences: int) -> None:
        self.reach = reach
        self.pool = pool
        self.table: NDArray[np.int32] = np.full((max_sequences, reach.columns), NO_BLOCK, np.int32)
        self.evict: Callable[[], bool] = lambda: False
        self.copy: Callable[[int, int], None] = lambda source, target: None
        self.forget: Callable[[int], None] = pool.forget
        self._held: list[dict[int, int]] = [{} for _ in range(max_sequences)]  # tile -> block, lowest tile first

    def block(self, slot: int, tile: int) -> int:
        """The block of a tile, NO_BLOCK if there is none."""
        return self._held[slot].get(tile, NO_BLOCK)

    def tiles(self, slot: int) -> list[tuple[int, int]]:
        """(tile, block) of all that a slot holds."""
        return list(self._held[slot].items())

    def allocate(self) -> int:
        """A block with one holder. Raises ResourceError when sequences that run hold them all."""
        if self.pool.num_free == 0:
            self.evict()
        return self.pool.allocate()

    def share(self, slot: int, tile: int, block: int) -> None:
        """Make a slot one more holder of a block, in place of what it has there."""
        self.pool.share(block)
        self._put(slot, tile, block)

    def reserve(self, slot: int, first: int, end: int) -> None:
        """Give tiles `first` to `end` - 1, which are about to be written, blocks that nobody else holds."""
        held = self._held[slot]
        for tile in range(first, end):
            if tile in held:
                self._own(slot, tile, held[tile])
                continue
            oldest = tile - self.reach.ring
            if tile >= self.reach.kept and oldest >= self.reach.kept:
                self._drop(slot, oldest)
            self._put(slot, tile, self.allocate())

    def can_stand(self, slot: int, num_tokens: int) -> bool:
        """True if all that position `num_tokens` sees is still stored."""
        held = self._held[slot]
        return all(tile in held for tiles in self.reach.needed_tiles(num_tokens) for tile in tiles)

    def cut(self, slot: int, tiles: int) -> None:
        """Give up the tiles from `tiles` on: what the tree may lose first, goes first."""
        doomed = [tile for tile in self._held[slot] if tile >= tiles]
        # Full layers need every tile before another, so the last are the first to lose. A window is of use whole or not
        # at all, so its parts go in order and those of the next newer one stay.
        for tile in sorted(doomed, reverse=True) if self.reach.window is None else sorted(doomed):
            self._drop(slot, tile)

    def _own(self, slot: int, tile: int, block: int) -> None:
        """Copy a shared block before it is written. The tree's hold is given up instead where there is no room."""
        if self.pool.count(block) == 1:
            return
        if self.pool.num_free == 0 and not self.evict() and self.pool.count(block) == 2 and self.pool.is_kept(block):
            self.forget(block)
            return
        fresh = self.allocate()
        self.copy(block, fresh)
        self._put(slot, tile, fresh)

    def _put(self, slot: int, tile: int, block: int) -> None:
        held = self._held[slot]
        old = held.get(tile, NO_BLOCK)
        held[tile] = block
        self.table[slot, self._column(tile)] = block
        if old != NO_BLOCK:
            self.pool.release(old)

    def _drop(self, slot: int, tile: int) -> None:
        block = self._held[slot].pop(tile, NO_BLOCK)
        if block != NO_BLOCK:
            self.table[slot, self._column(tile)] = NO_BLOCK
            self.pool.release(block)

    def _column(self, tile: int) -> int:
        kept = self.reach.kept
        return tile if tile < kept else kept + (tile - kept) % self.reach.ring
