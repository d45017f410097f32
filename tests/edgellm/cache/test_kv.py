"""KVCache: sizes, addresses, memory checks, and the invariants of block tables and rings."""

from __future__ import annotations

import ctypes
import itertools
import mmap

import numpy as np
import psutil  # type: ignore[import-untyped,unused-ignore]
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgellm.cache import kv
from edgellm.cache.kv import NO_BLOCK, KVCache, ring_blocks
from edgellm.errors import ContextError, EdgeLLMError, ResourceError
from edgellm.kernels.cache_layout import BLOCK_SIZE
from edgellm.kernels.ops import CacheLayer

FULL = CacheLayer(2, 64)
WINDOW = CacheLayer(1, 96, window=70)


def test_ring_holds_window_and_chunk_at_any_alignment_and_no_block_more() -> None:
    for window, chunk in [(1, 1), (8, 1), (63, 2), (64, 1), (65, 64), (512, 512), (100, 7)]:
        live = window + chunk
        most = max((start + live - 1) // BLOCK_SIZE - start // BLOCK_SIZE + 1 for start in range(BLOCK_SIZE))
        assert ring_blocks(window, 10**6, chunk) == most
    assert ring_blocks(512, 256, 512) == 4
    assert ring_blocks(None, 257, 1) == 5


def test_groups_are_one_per_reach_and_nbytes_is_the_sum_of_their_arrays() -> None:
    cache = KVCache([WINDOW, FULL, WINDOW, CacheLayer(1, 32, window=9)], 1000, 3, 100)
    assert cache.group_of_layer == (0, 1, 0, 2)
    assert [table.shape for table in cache.tables] == [(3, 16)] * 3
    assert all(table.dtype == np.int32 for table in cache.tables)
    window_blocks, full_blocks, small_blocks = 3 * 4, 3 * 16, 3 * 3
    expected = 2 * window_blocks * 64 * 96 * 4 + full_blocks * 2 * 64 * 64 * 4 + small_blocks * 64 * 32 * 4
    assert cache.nbytes == expected
    assert KVCache.needed_bytes([FULL], 1000, 1, 100) == 16 * 2 * 64 * 64 * 4
    cache.free()


def test_tiles_are_aligned_zeroed_writable_apart_and_gone_after_free() -> None:
    layers = [CacheLayer(1, 33, window=5), FULL, CacheLayer(3, 80)]  # head 33: V rounds up to 64 dims
    cache = KVCache(layers, 128, 2, 16)
    spans = []
    for index, layer in enumerate(layers):
        group = cache.group_of_layer[index]
        k_bytes = layer.num_kv_heads * 64 * layer.head_dim * 2
        v_bytes = layer.num_kv_heads * 64 * -(-layer.head_dim // 32) * 32 * 2
        for block in range(cache._groups[group].pool.num_blocks):
            for first, nbytes in zip(cache.address(index), (k_bytes, v_bytes), strict=True):
                address = first + block * cache.block_bytes_of_group[group]
                assert address % 64 == 0
                array = np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(address))
                assert not array.any()
                array[:] = 1  # a neighbour that overlaps is no longer zero
                spans.append((address, address + nbytes))
    spans.sort()
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))
    assert spans[-1][1] - spans[0][0] <= cache.nbytes
    cache.free()
    cache.free()
    with pytest.raises(ResourceError, match="closed"):
        cache.address(0)


def test_untouched_blocks_cost_no_memory() -> None:
    process = psutil.Process()
    before = process.memory_info().rss
    cache = KVCache([FULL] * 4, 200_000, 1)
    assert cache.nbytes > 400e6
    assert process.memory_info().rss - before < 40e6
    cache.free()


def test_low_blocks_are_handed_out_first_and_come_back() -> None:
    cache = KVCache([FULL], 256, 2)
    first, second = cache.open(), cache.open()
    cache.reserve(first, 65)
    cache.reserve(second, 64)
    assert cache.tables[0].tolist() == [[0, 1, NO_BLOCK, NO_BLOCK], [2, NO_BLOCK, NO_BLOCK, NO_BLOCK]]
    cache.close(first)
    cache.reserve(second, 256)
    assert cache.tables[0].tolist() == [[NO_BLOCK] * 4, [2, 0, 1, 3]]
    assert cache.open() == first
    with pytest.raises(ResourceError, match="all 2 cache slots"):
        cache.open()


def test_more_than_the_context_is_refused_with_both_numbers() -> None:
    cache = KVCache([FULL], 100, 1)
    slot = cache.open()
    cache.reserve(slot, 100)
    with pytest.raises(ContextError, match="101.*100"):
        cache.reserve(slot, 101)


def test_too_large_a_context_is_refused_before_allocating(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*args: object, **keywords: object) -> mmap.mmap:
        raise AssertionError("allocated")

    monkeypatch.setattr(mmap, "mmap", never)
    with pytest.raises(ResourceError) as caught:
        KVCache([FULL] * 30, 1 << 31, 1)
    needed = (1 << 31) * 30 * 2 * 64 * 4
    message = str(caught.value)
    assert "max_context 2147483648" in message and str(needed) in message and "--max-context" in message
    assert "available" in message and "\n" not in message


def test_the_memory_limit_is_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    needed = KVCache.needed_bytes([FULL], 512, 1, 512)
    monkeypatch.setattr(kv, "available_bytes", lambda: needed)
    KVCache([FULL], 512, 1).free()
    monkeypatch.setattr(kv, "available_bytes", lambda: needed - 1)
    with pytest.raises(ResourceError, match=f"{needed} bytes.*{needed - 1} bytes"):
        KVCache([FULL], 512, 1)


def test_a_system_that_refuses_the_map_gives_our_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **keywords: object) -> mmap.mmap:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(mmap, "mmap", refuse)
    with pytest.raises(ResourceError, match="cannot reserve.*Cannot allocate memory"):
        KVCache([FULL], 64, 1)


def test_rewind_is_exact_or_refused() -> None:
    cache = KVCache([FULL, WINDOW], 4096, 1, 10)  # a ring of 3 blocks
    slot = cache.open()
    cache.reserve(slot, 192)
    cache.rewind(slot, 1)
    assert [(table[slot] != NO_BLOCK).sum() for table in cache.tables] == [1, 1]
    cache.reserve(slot, 192)
    cache.rewind(slot, 192)
    cache.reserve(slot, 193)  # takes the block of tile 0
    before = [table.copy() for table in cache.tables]
    with pytest.raises(ContextError, match="from 193 to 132 tokens.*window of 70"):
        cache.rewind(slot, 132)  # position 132 sees 63, which is gone
    assert all((table == old).all() for table, old in zip(cache.tables, before, strict=True))
    cache.rewind(slot, 133)
    assert cache.length(slot) == 133
    cache.rewind(slot, 0)
    assert all((table == NO_BLOCK).all() for table in cache.tables)
    with pytest.raises(ContextError, match="cannot rewind to 1 "):
        cache.rewind(slot, 1)


class Model:
    """What is stored where, told by playing the writes: per group and block, the slot and position last written."""

    def __init__(self, windows: list[int | None], context: int, chunk: int) -> None:
        self.windows, self.context, self.chunk = windows, context, chunk
        self.cache = KVCache([CacheLayer(1, 32, window) for window in windows], context, 3, chunk)
        groups = list(dict.fromkeys(windows))
        self.windows_of_groups = groups
        self.written = [dict[tuple[int, int], tuple[int, int]]() for _ in groups]
        self.lengths: dict[int, int] = {}

    def append(self, slot: int, count: int) -> None:
        """Write `count` tokens in chunks, the first a part of one, so that later ones start anywhere in a block."""
        self.append_chunk(slot, count % self.chunk)
        for _ in range(count // self.chunk):
            self.append_chunk(slot, self.chunk)

    def append_chunk(self, slot: int, count: int) -> None:
        """Write as attention does: all of them first, then read everything in reach of each."""
        start = self.lengths[slot]
        count = min(count, self.chunk, self.context - start)
        if count <= 0:
            return
        self.cache.reserve(slot, start + count)
        for written, table in zip(self.written, self.cache.tables, strict=True):
            for position in range(start, start + count):
                written[int(table[slot, position // BLOCK_SIZE]), position % BLOCK_SIZE] = slot, position
        self.lengths[slot] = start + count
        self.check_reach(slot, start)
        self.check_reach(slot, start + count - 1)

    def check_reach(self, slot: int, position: int) -> None:
        for window, written, table in zip(self.windows_of_groups, self.written, self.cache.tables, strict=True):
            low = 0 if window is None else max(0, position - window + 1)
            for seen in range(low, position + 1):
                block = int(table[slot, seen // BLOCK_SIZE])
                assert block != NO_BLOCK
                assert written[block, seen % BLOCK_SIZE] == (slot, seen)

    def check_blocks(self) -> None:
        for group, table in zip(self.cache._groups, self.cache.tables, strict=True):
            live = table[table != NO_BLOCK].tolist()
            assert len(live) == len(set(live)), "a block is used twice"
            assert group.pool.num_free == group.pool.num_blocks - len(live)
            assert all(group.pool.count(block) == 1 for block in live)
            for slot in range(3):
                assert (table[slot] != NO_BLOCK).sum() <= (group.ring if slot in self.lengths else 0)


ACTIONS = st.tuples(st.sampled_from(["open", "append", "append", "append", "rewind", "close"]), st.integers(0, 400))


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.sampled_from([None, 1, 8, 63, 64, 65, 130]), min_size=1, max_size=3),
    st.integers(1, 700),
    st.sampled_from([1, 7, 64, 150]),
    st.lists(ACTIONS, max_size=12).map(lambda actions: [("open", 0), *actions]),
)
def test_everything_in_reach_is_where_the_tables_say(
    windows: list[int | None], context: int, chunk: int, actions: list[tuple[str, int]]
) -> None:
    model = Model(windows, context, chunk)
    try:
        for action, number in actions:
            slots = sorted(model.lengths)
            if action == "open" and len(slots) < 3:
                model.lengths[model.cache.open()] = 0
            elif slots:
                slot = slots[number % len(slots)]
                if action == "append":
                    model.append(slot, number)
                elif action == "close":
                    model.cache.close(slot)
                    del model.lengths[slot]
                elif action == "rewind":
                    rewind(model, slot, number)
            model.check_blocks()
    finally:
        model.cache.free()


def rewind(model: Model, slot: int, number: int) -> None:
    target = max(0, model.lengths[slot] - number)
    try:
        model.cache.rewind(slot, target)
    except EdgeLLMError:
        # Refused: then truly nothing is left of something that is needed, and nothing has changed.
        oldest = [0 if window is None else max(0, target - window + 1) for window in model.windows_of_groups]
        tables = zip(oldest, model.cache.tables, strict=True)
        assert target > 0 and any(table[slot, position // BLOCK_SIZE] == NO_BLOCK for position, table in tables)
        if model.lengths[slot]:
            model.check_reach(slot, model.lengths[slot] - 1)
        return
    model.lengths[slot] = target
    for window, written, table in zip(model.windows_of_groups, model.written, model.cache.tables, strict=True):
        for seen in range(0 if window is None else max(0, target - window + 1), target):
            assert written[int(table[slot, seen // BLOCK_SIZE]), seen % BLOCK_SIZE] == (slot, seen)
