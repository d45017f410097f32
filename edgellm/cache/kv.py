"""Where cached keys and values lie: one anonymous memory map for all layers, and a block table per group of layers.

Layers that forget alike form a group and share block ids: full layers keep every block, layers with a window keep a
ring of blocks that are used again once they fell out of reach. Knows no weights, no text and no numbers. What lies in
a block is `kernels/cache_layout.py`, who holds which block is `pool.py`; attention reads through `KVCache.address`.
"""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..errors import ContextError, ResourceError
from ..kernels.cache_layout import BLOCK_SIZE, k_tile_bytes, v_tile_bytes
from ..kernels.ops import CacheLayer
from .pool import BlockPool

ALIGNMENT = 64
NO_BLOCK = -1


def num_tiles(num_tokens: int) -> int:
    """Blocks that `num_tokens` positions from 0 on touch."""
    return -(-num_tokens // BLOCK_SIZE)


def ring_blocks(window: int | None, max_context: int, prefill_chunk: int) -> int:
    """Blocks one sequence needs in a group: window + prefill_chunk tokens at any alignment, or the whole context.

    A chunk is written before it is read, so the oldest token in reach of the chunk's first must survive its last.
    """
    full = num_tiles(max_context)
    if window is None:
        return full
    return min(full, (window + prefill_chunk + BLOCK_SIZE - 2) // BLOCK_SIZE + 1)


def available_bytes() -> int:
    """Memory that this process could be given now without swapping: what the system has, or the container's limit."""
    import psutil  # type: ignore[import-untyped,unused-ignore]

    from ..kernels.cpu.limits import memory_left

    return max(0, int(min(psutil.virtual_memory().available, memory_left())))


def require_memory(needed_bytes: int, max_context: int, max_sequences: int) -> None:
    """Raise ResourceError when a cache of `needed_bytes` would not fit into the memory that is available."""
    available = available_bytes()
    if needed_bytes > available:
        raise ResourceError(
            f"the cache for max_context {max_context} and max_sequences {max_sequences} needs "
            f"{needed_bytes / 1e9:.2f} GB ({needed_bytes} bytes), available are {available / 1e9:.2f} GB "
            f"({available} bytes); choose a smaller max_context (--max-context) or max_sequences"
        )


class CacheGroup:
    """Layers with one reach: their pool of blocks, the table of each slot, and how far each slot's ring has turned.

    table: i32[max_sequences, tiles]; NO_BLOCK where nothing is stored, or no longer.
    """

    def __init__(self, window: int | None, max_context: int, max_sequences: int, prefill_chunk: int) -> None:
        self.window = window
        self.ring = ring_blocks(window, max_context, prefill_chunk)
        self.pool = BlockPool(self.ring * max_sequences)
        self.table: NDArray[np.int32] = np.full((max_sequences, num_tiles(max_context)), NO_BLOCK, np.int32)
        self._first = [0] * max_sequences  # the lowest tile still stored
        self._end = [0] * max_sequences  # one past the highest tile that has a block

    def reserve(self, slot: int, tiles: int) -> None:
        """Give every tile below `tiles` that is in reach a block, taking the ring's oldest once it is full."""
        row = self.table[slot]
        for tile in range(self._end[slot], tiles):
            oldest = self._first[slot]
            if tile - oldest < self.ring:
                row[tile] = self.pool.allocate()
            else:
                row[tile], row[oldest] = row[oldest], NO_BLOCK
                self._first[slot] = oldest + 1
            self._end[slot] = tile + 1

    def can_rewind(self, slot: int, num_tokens: int) -> bool:
        """True if all that position `num_tokens` would reach back to is still stored."""
        oldest = 0 if self.window is None else max(0, num_tokens - self.window + 1)
        return num_tokens == 0 or oldest // BLOCK_SIZE >= self._first[slot]

    def rewind(self, slot: int, tiles: int) -> None:
        """Free the blocks of the tiles from `tiles` on."""
        row = self.table[slot]
        for tile in range(max(tiles, self._first[slot]), self._end[slot]):
            self.pool.release(int(row[tile]))
            row[tile] = NO_BLOCK
        self._end[slot] = min(self._end[slot], tiles)
        if tiles == 0:
            self._first[slot] = 0


class KVCache:
    """Keys and values of all layers for up to `max_sequences` slots of `max_context` tokens each.

    Memory is reserved, not touched: the system backs a block when it is first written, and low ids go first.

    tables: per group i32[max_sequences, tiles], live views that change as slots grow; entry t of a slot's row is the
        block of its positions 64 t to 64 t + 63.
    group_of_layer: index into `tables` of each layer.
    nbytes: size of the reservation.
    Raises ResourceError if the machine lacks the memory, before anything is allocated.
    """

    def __init__(
        self, layers: Sequence[CacheLayer], max_context: int, max_sequences: int = 1, prefill_chunk: int = 512
    ) -> None:
        self.nbytes = self.needed_bytes(layers, max_context, max_sequences, prefill_chunk)
        require_memory(self.nbytes, max_context, max_sequences)
        self.max_context = max_context
        self.max_sequences = max_sequences
        windows = list(dict.fromkeys(layer.window for layer in layers))
        self._groups = [CacheGroup(window, max_context, max_sequences, prefill_chunk) for window in windows]
        self.group_of_layer = tuple(windows.index(layer.window) for layer in layers)
        self.tables = tuple(group.table for group in self._groups)
        self.formats = ("f16", "f16")
        self.columns_of_group = tuple((group.table.shape[1], 1) for group in self._groups)
        self.block_bytes_of_group = tuple(
            sum(map(_layer_bytes, layers_of)) for layers_of in self._layers_by_group(layers)
        )
        self._slots = BlockPool(max_sequences)
        self._lengths = [0] * max_sequences
        self._memory: mmap.mmap | None = _map_anonymous(self.nbytes)
        self._addresses = self._place(layers)

    @staticmethod
    def needed_bytes(layers: Sequence[CacheLayer], max_context: int, max_sequences: int, prefill_chunk: int) -> int:
        """Bytes such a cache can come to use, without making one."""
        total = 0
        for layer in layers:
            blocks = ring_blocks(layer.window, max_context, prefill_chunk) * max_sequences
            total += blocks * _layer_bytes(layer)
        return total

    def open(self) -> int:
        """Return a free slot, empty. Raises ResourceError when all `max_sequences` are taken."""
        if self._slots.num_free == 0:
            raise ResourceError(f"all {self.max_sequences} cache slots are in use; raise max_sequences")
        return self._slots.allocate()

    def close(self, slot: int) -> None:
        """Free a slot and all its blocks."""
        self._check_open(slot)
        self._cut(slot, 0)
        self._slots.release(slot)

    @property
    def num_free_slots(self) -> int:
        """Sequences that could be opened now."""
        return self._slots.num_free

    def length(self, slot: int) -> int:
        """Positions of `slot` that have a place."""
        return self._lengths[slot]

    def reserve(self, slot: int, num_tokens: int) -> None:
        """Make every position below `num_tokens` that is in reach of the last have a place; never shrinks.

        A window group's oldest blocks are used again, so grow by at most prefill_chunk beyond what has been written.
        Raises ContextError beyond max_context.
        """
        self._check_open(slot)
        if num_tokens > self.max_context:
            raise ContextError(f"{num_tokens} tokens do not fit into max_context {self.max_context}; raise it")
        for group in self._groups:
            group.reserve(slot, num_tiles(num_tokens))
        self._lengths[slot] = max(self._lengths[slot], num_tokens)

    def rewind(self, slot: int, num_tokens: int) -> None:
        """Forget the positions from `num_tokens` on, exactly.

        Raises ContextError, and changes nothing, if a window has moved on so far that what position `num_tokens` must
        see is gone: the caller then starts again from an empty slot (rewind to 0 is always possible).
        """
        self._check_open(slot)
        if not 0 <= num_tokens <= self._lengths[slot]:
            raise ContextError(f"cannot rewind to {num_tokens} tokens: the slot holds {self._lengths[slot]}")
        for group in self._groups:
            if not group.can_rewind(slot, num_tokens):
                raise ContextError(
                    f"cannot rewind from {self._lengths[slot]} to {num_tokens} tokens: the window of {group.window} "
                    f"has moved on; recompute from the start"
                )
        self._cut(slot, num_tokens)

    def address(self, layer: int) -> tuple[int, int]:
        """Addresses of a layer's K and V in block 0, each laid out [kv_head][tile bytes] and aligned to 64 bytes."""
        if self._memory is None:
            raise ResourceError("this cache is closed")
        return self._addresses[layer]

    def free(self) -> None:
        """Give the memory back. Addresses are invalid from here on; harmless when repeated."""
        memory, self._memory = self._memory, None
        if memory is not None:
            memory.close()

    def _cut(self, slot: int, num_tokens: int) -> None:
        for group in self._groups:
            group.rewind(slot, num_tiles(num_tokens))
        self._lengths[slot] = num_tokens

    def _check_open(self, slot: int) -> None:
        assert self._slots.count(slot) == 1, f"cache slot {slot} is not open"

    def _place(self, layers: Sequence[CacheLayer]) -> list[tuple[int, int]]:
        # The NumPy view is dropped at once: a map with a living view cannot be closed.
        base = int(np.frombuffer(self._memory or b"\0", np.uint8).__array_interface__["data"][0])
        places = {}
        for index, group in enumerate(self._groups):
            at = base
            for number, layer in enumerate(layers):
                if self.group_of_layer[number] == index:
                    places[number] = at, at + layer.num_kv_heads * k_tile_bytes(layer.head_dim)
                    at += _layer_bytes(layer)
            base += group.pool.num_blocks * self.block_bytes_of_group[index]
        return [places[number] for number in range(len(layers))]

    def _layers_by_group(self, layers: Sequence[CacheLayer]) -> list[list[CacheLayer]]:
        of = range(len(self._groups))
        return [[x for x, g in zip(layers, self.group_of_layer, strict=True) if g == group] for group in of]


def read_bytes(layers: Sequence[CacheLayer], num_tokens: int) -> int:
    """Bytes of K and V that a token attends to at a depth of `num_tokens`: a layer with a window stops there."""
    total = 0
    for layer in layers:
        reach = num_tokens if layer.window is None else min(num_tokens, layer.window)
        per_block = k_tile_bytes(layer.head_dim) + v_tile_bytes(layer.head_dim)
        total += reach * layer.num_kv_heads * per_block // BLOCK_SIZE
    return total


def _layer_bytes(layer: CacheLayer) -> int:
    """Bytes of a layer in a block: a multiple of ALIGNMENT, as all tiles are."""
    return layer.num_kv_heads * (k_tile_bytes(layer.head_dim) + v_tile_bytes(layer.head_dim))


def _map_anonymous(nbytes: int) -> mmap.mmap:
    """Map zeroed private pages, which start on a page boundary and cost nothing until they are touched."""
    length = max(nbytes, 1)
    try:
        if hasattr(mmap, "MAP_PRIVATE"):
            memory = mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            if hasattr(mmap, "MADV_HUGEPAGE"):
                with contextlib.suppress(OSError):  # advice: nothing is wrong when the system does not take it
                    memory.madvise(mmap.MADV_HUGEPAGE)
            return memory
        return mmap.mmap(-1, length)
    except (OSError, ValueError, OverflowError, MemoryError) as error:
        raise ResourceError(f"cannot reserve {nbytes} bytes for the cache ({error}); lower max_context") from error
