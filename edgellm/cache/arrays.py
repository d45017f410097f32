"""The bytes of the cache: one anonymous map, in it each layer's K and V, [block][kv_head][tile bytes].

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
from .memory import Formats, array_bytes, map_anonymous, tile_bytes, total_bytes


class CacheArrays:
    """K and V of all layers; each group's layers have the same number of blocks.

    nbytes: size of the reservation.
    """

    def __init__(self, layers: Sequence[CacheLayer], num_blocks: Sequence[int], formats: Formats) -> None:
        self.nbytes = total_bytes(layers, num_blocks, formats)
        self._memory: mmap.mmap | None = map_anonymous(self.nbytes)
        self._addresses: list[tuple[int, int]] = []
        self._parts: list[list[tuple[int, int]]] = [
            [] for _ in num_blocks
        ]  # per group: (array's address, block's bytes)
        # The NumPy view is dropped at once: a map with a living view cannot be closed.
        base = int(np.frombuffer(self._memory, np.uint8).__array_interface__["data"][0])
        for layer, group in zip(layers, layer_groups(layers), strict=True):
            k_bytes, v_bytes = array_bytes(layer, num_blocks[group], formats)
            self._addresses.append((base, base + k_bytes))
            self._parts[group] += zip(self._addresses[-1], tile_bytes(layer, formats), strict=True)
            base += k_bytes + v_bytes

    def address(self, layer: int) -> tuple[int, int]:
        """Addresses of a layer's K and V, each aligned to 64 bytes."""
        self._require_open()
        return self._addresses[layer]

    def block_bytes(self, group: int) -> int:
        """Bytes of one block: K and V of all layers of the group."""
        return sum(nbytes for _, nbytes in self._parts[group])

    def read(self, group: int, block: int) -> bytes:
        """A block's bytes: K then V of the group's first layer, of its second, and so on."""
        self._require_open()
        return b"".join(ctypes.string_at(base + block * nbytes, nbytes) for base, nbytes in self._parts[group])

    def write(self, group: int, block: int, data: bytes) -> None:
        """Put back what `read` gave."""
        self._require_open()
        assert len(data) == self.block_bytes(group), f"{len(data)} bytes are not a block"
        start = 0
        for base, nbytes in self._parts[group]:
            ctypes.memmove(base + block * nbytes, data[start : start + nbytes], nbytes)
            start += nbytes

    def copy(self, group: int, source: int, target: int) -> None:
        """Copy one block over another."""
        self._require_open()
        for base, nbytes in self._parts[group]:
            ctypes.memmove(base + target * nbytes, base + source * nbytes, nbytes)

    def free(self) -> None:
        """Give the memory back. Addresses are invalid from here on; harmless when repeated."""
        memory, self._memory = self._memory, None
        if memory is not None:
            memory.close()

    def _require_open(self) -> None:
        if self._memory is None:
            raise ResourceError("this cache is closed")
