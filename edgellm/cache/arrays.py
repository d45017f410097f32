"""The bytes of the cache: one anonymous map, in it each group's blocks, in each block every layer's K
and V, [kv_head][tile bytes].

Knows addresses and blocks, no tokens and no sequence. What lies in a tile is `kernels/cache_layout.py`. Memory is
reserved, not touched: the system backs a block when it is first written. Next hop: `memory.py` makes the map.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Sequence

import numpy as np

from ..errors import ResourceError
from ..kernels.ops import CacheLayer
from .groups import layer_groups
from .memory import Formats, map_anonymous, tile_bytes, total_bytes, use_large_pages

LARGE_BLOCK = 1 << 20
"""Bytes of a block from which a large page, of two megabytes mostly, is not mostly empty."""


class CacheArrays:
    """K and V of all layers, group by group; a block holds all layers of its group.

    nbytes: size of the reservation. block_bytes_of_group: of one block of each group.
    """

    def __init__(self, layers: Sequence[CacheLayer], num_blocks: Sequence[int], formats: Formats) -> None:
        self.nbytes = total_bytes(layers, num_blocks, formats)
        self._memory: mmap.mmap | None = map_anonymous(self.nbytes)
        groups, sizes = layer_groups(layers), [tile_bytes(layer, formats) for layer in layers]
        self.block_bytes_of_group = tuple(
            sum(sum(size) for size, g in zip(sizes, groups, strict=True) if g == group)
            for group in range(len(num_blocks))
        )
        # The NumPy view is dropped at once: a map with a living view cannot be closed.
        base = int(np.frombuffer(self._memory, np.uint8).__array_interface__["data"][0])
        self._bases = [base]
        for count, nbytes in zip(num_blocks, self.block_bytes_of_group, strict=True):
            if nbytes >= LARGE_BLOCK:
                use_large_pages(self._memory, self._bases[-1] - base, count * nbytes)
            self._bases.append(self._bases[-1] + count * nbytes)
        at = list(self._bases)
        self._addresses: list[tuple[int, int]] = []
        for (k_bytes, v_bytes), group in zip(sizes, groups, strict=True):
            self._addresses.append((at[group], at[group] + k_bytes))
            at[group] += k_bytes + v_bytes

    def address(self, layer: int) -> tuple[int, int]:
        """Addresses of a layer's K and V in block 0, each aligned to 64 bytes."""
        self._require_open()
        return self._addresses[layer]

    def read(self, group: int, block: int) -> bytes:
        """A block's bytes: K then V of the group's first layer, of its second, and so on."""
        return ctypes.string_at(self._place(group, block), self.block_bytes_of_group[group])

    def write(self, group: int, block: int, data: bytes) -> None:
        """Put back what `read` gave."""
        assert len(data) == self.block_bytes_of_group[group], f"{len(data)} bytes are not a block"
        ctypes.memmove(self._place(group, block), data, len(data))

    def copy(self, group: int, source: int, target: int) -> None:
        """Copy one block over another."""
        ctypes.memmove(self._place(group, target), self._place(group, source), self.block_bytes_of_group[group])

    def _place(self, group: int, block: int) -> int:
        self._require_open()
        return self._bases[group] + block * self.block_bytes_of_group[group]

    def free(self) -> None:
        """Give the memory back. Addresses are invalid from here on; harmless when repeated."""
        memory, self._memory = self._memory, None
        if memory is not None:
            memory.close()

    def _require_open(self) -> None:
        if self._memory is None:
            raise ResourceError("this cache is closed")
