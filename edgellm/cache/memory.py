"""How much memory a cache takes, how many blocks fit into what there is, and the map that holds them.

Knows layers and sizes, no sequence. Next hops: `arrays.py` lays the layers out in the map.
"""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Sequence

from ..config import DEFAULT_CACHE_TYPE
from ..errors import ResourceError
from ..kernels import cache_formats
from ..kernels.cache_layout import BLOCK_SIZE
from ..kernels.ops import CacheLayer
from .groups import Reach, layer_groups, list_reaches

SPARE = 2  # by default, memory for so many times what the sequences need: the rest holds what earlier ones left

Formats = tuple[str, str]
DEFAULT_FORMATS: Formats = (DEFAULT_CACHE_TYPE, DEFAULT_CACHE_TYPE)


def tile_bytes(layer: CacheLayer, formats: Formats) -> tuple[int, int]:
    """Bytes of K and of V of one block of a layer, all its heads. formats: names of those of K and V."""
    k, v = (cache_formats.get(name) for name in formats)
    k_dim, v_dim = layer.dims
    return layer.num_kv_heads * k.k_tile_bytes(k_dim), layer.num_kv_heads * v.v_tile_bytes(v_dim)


def total_bytes(layers: Sequence[CacheLayer], num_blocks: Sequence[int], formats: Formats) -> int:
    """Bytes of all layers whose groups have `num_blocks` blocks."""
    groups = layer_groups(layers)
    return sum(num_blocks[g] * sum(tile_bytes(layer, formats)) for layer, g in zip(layers, groups, strict=True))


def needed_bytes(
    layers: Sequence[CacheLayer],
    max_context: int | None,
    max_sequences: int,
    prefill_chunk: int,
    formats: Formats = DEFAULT_FORMATS,
) -> int:
    """Bytes that `max_sequences` sequences of `max_context` tokens come to use."""
    reaches = list_reaches(layers, max_context, prefill_chunk)
    return total_bytes(layers, [reach.columns * max_sequences for reach in reaches], formats)


def read_bytes(layers: Sequence[CacheLayer], num_tokens: int, formats: Formats = DEFAULT_FORMATS) -> int:
    """Bytes of K and V that a token attends to at a depth of `num_tokens`: a layer with a window stops there."""
    total = 0
    for layer in layers:
        reach = num_tokens if layer.window is None else min(num_tokens, layer.window + layer.num_sink_tokens)
        total += reach * sum(tile_bytes(layer, formats)) // BLOCK_SIZE
    return total


def growth_bytes(layers: Sequence[CacheLayer], formats: Formats = DEFAULT_FORMATS) -> int:
    """Bytes that one more token costs in the layers that see all, averaged over a block; the others stop at their windows."""
    return read_bytes([layer for layer in layers if layer.window is None], BLOCK_SIZE, formats) // BLOCK_SIZE


def available_bytes() -> int:
    """Memory that this process could be given now without swapping: what the system has, or the container's limit."""
    import psutil  # type: ignore[import-untyped,unused-ignore]

    from ..kernels.cpu.limits import memory_left

    return max(0, int(min(psutil.virtual_memory().available, memory_left())))


def choose_blocks(
    layers: Sequence[CacheLayer],
    reaches: Sequence[Reach],
    max_context: int | None,
    max_sequences: int,
    formats: Formats,
    memory_bytes: int | None,
    fixed_bytes: int = 0,
) -> list[int]:
    """Blocks of each group: as many as `memory_bytes` hold, or twice what the sequences need, or just what they need.

    fixed_bytes: what is needed beside blocks.
    Raises ResourceError where `memory_bytes` hold not one sequence, and where the machine lacks the memory.
    """
    available = available_bytes()
    context, smaller = f"max_context {max_context}", "max_context (--max-context)"
    if max_context is None:
        widest = max((reach.window or 0 for reach in reaches), default=0)
        context, smaller = f"a window of {widest} tokens", "window (--window, or --max-context with --on-full window)"
    one = total_bytes(layers, [reach.columns for reach in reaches], formats)
    if memory_bytes is not None:
        if memory_bytes < one + fixed_bytes:
            raise ResourceError(
                f"one sequence of {context} needs {_say(one + fixed_bytes)} of cache, the limit set for it is "
                f"{_say(memory_bytes)}; raise it (--cache-memory) or choose a smaller {smaller}"
            )
        if memory_bytes > available:
            raise ResourceError(
                f"the cache may take {_say(memory_bytes)}, available are {_say(available)}; lower it (--cache-memory)"
            )
        return [reach.columns * (memory_bytes - fixed_bytes) // max(one, 1) for reach in reaches]
    for times in (SPARE * max_sequences, max_sequences):
        blocks = [reach.columns * times for reach in reaches]
        needed = total_bytes(layers, blocks, formats) + fixed_bytes
        if needed <= available:
            return blocks
    raise ResourceError(
        f"the cache for {context} and max_sequences {max_sequences} needs {_say(needed)}, available are "
        f"{_say(available)}; choose a smaller {smaller} or max_sequences, or let sequences share less "
        f"memory (--cache-memory)"
    )


def map_anonymous(nbytes: int) -> mmap.mmap:
    """Map zeroed private pages, which start on a page boundary and cost nothing until they are touched."""
    length = max(nbytes, 1)
    try:
        if hasattr(mmap, "MAP_PRIVATE"):
            return mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        return mmap.mmap(-1, length)
    except (OSError, ValueError, OverflowError, MemoryError) as error:
        raise ResourceError(f"cannot reserve {nbytes} bytes for the cache ({error}); lower max_context") from error


def use_large_pages(pages: mmap.mmap, start: int, nbytes: int) -> None:
    """Put a part of a map on large pages where the system has them: attention jumps from tile to tile, and looks up an address
    for each."""
    if hasattr(mmap, "MADV_HUGEPAGE") and nbytes > 0:
        first = start // mmap.PAGESIZE * mmap.PAGESIZE
        with contextlib.suppress(OSError):  # advice: nothing is wrong when the system does not take it
            pages.madvise(mmap.MADV_HUGEPAGE, first, start + nbytes - first)


def _say(nbytes: int) -> str:
    return f"{nbytes / 1e9:.2f} GB ({nbytes} bytes)"
