"""How many blocks a cache gets: from the machine's memory, from the user's limit, or a clear refusal. Case O21."""

from __future__ import annotations

import mmap

import pytest

from edgellm.cache import memory
from edgellm.cache.kv import KVCache
from edgellm.cache.memory import read_bytes
from edgellm.errors import ResourceError
from edgellm.kernels.ops import CacheLayer

FULL = CacheLayer(2, 64)
SMALL = CacheLayer(1, 32, window=64)


def test_too_large_a_context_is_refused_before_allocating(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*args: object, **keywords: object) -> mmap.mmap:
        raise AssertionError("allocated")

    monkeypatch.setattr(mmap, "mmap", never)
    with pytest.raises(ResourceError) as caught:
        KVCache([FULL] * 30, 1 << 31, 1)
    needed = (1 << 31) * 30 * 2 * 2 * (64 * 2 + 4)  # 30 layers, 2 heads, K and V, 64 dims of two bytes and a scale
    message = str(caught.value)
    assert "max_context 2147483648" in message and str(needed) in message and "--max-context" in message
    assert "available" in message and "\n" not in message


def test_there_is_room_for_earlier_sequences_where_the_machine_has_some(monkeypatch: pytest.MonkeyPatch) -> None:
    needed = memory.needed_bytes([FULL], 512, 3, 512)
    for available, taken in ((10 * needed, 2 * needed), (2 * needed, 2 * needed), (2 * needed - 1, needed)):
        monkeypatch.setattr(memory, "available_bytes", lambda: available)  # noqa: B023
        cache = KVCache([FULL], 512, 3)
        assert cache.nbytes == taken
        cache.free()
    monkeypatch.setattr(memory, "available_bytes", lambda: needed - 1)
    with pytest.raises(ResourceError, match=f"{needed} bytes.*{needed - 1} bytes"):
        KVCache([FULL], 512, 3)


def test_a_limit_is_shared_among_the_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    layers = [FULL, SMALL]
    one = memory.needed_bytes(layers, 1024, 1, 64)
    for times, blocks in ((1, [16, 3]), (2.5, [40, 7]), (100, [1600, 300])):
        cache = KVCache(layers, 1024, 4, 64, memory_bytes=int(one * times))
        assert [group.pool.num_blocks for group in cache._groups] == blocks
        assert one <= cache.nbytes <= one * times
        cache.free()
    message = rf"max_context 1024 needs .*{one} bytes.* limit .*{one - 1} bytes.*--cache-memory"
    with pytest.raises(ResourceError, match=message) as caught:
        KVCache(layers, 1024, 4, 64, memory_bytes=one - 1)
    assert "\n" not in str(caught.value)
    monkeypatch.setattr(memory, "available_bytes", lambda: one)
    with pytest.raises(ResourceError, match=rf"{one + 1} bytes.*available.*{one} bytes.*--cache-memory"):
        KVCache(layers, 1024, 4, 64, memory_bytes=one + 1)


def test_a_system_that_refuses_the_map_gives_our_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **keywords: object) -> mmap.mmap:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(mmap, "mmap", refuse)
    with pytest.raises(ResourceError, match=r"cannot reserve.*Cannot allocate memory"):
        KVCache([FULL], 64, 1)


def test_what_a_token_reads_ends_with_the_window() -> None:
    layers = [FULL, SMALL, CacheLayer(1, 32, window=100, num_sink_tokens=4)]
    per_token = [
        2 * 2 * (64 * 2 + 4),
        2 * (32 * 2 + 4),
        2 * (32 * 2 + 4),
    ]  # heads, K and V, dims of two bytes and a scale
    assert read_bytes(layers, 50) == 50 * sum(per_token)
    assert read_bytes(layers, 1000) == 1000 * per_token[0] + 64 * per_token[1] + 104 * per_token[2]
