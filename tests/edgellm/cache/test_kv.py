"""KVCache: tables, sharing, copies before writing, what is kept and found again. Cases O17, O21, O25."""

from __future__ import annotations

import numpy as np
import pytest
from cache_model import CacheModel, MemoryStorage, make_layers, make_path

from edgellm.cache.kv import KVCache
from edgellm.cache.memory import needed_bytes
from edgellm.cache.pool import NO_BLOCK
from edgellm.errors import ContextError, ResourceError
from edgellm.kernels.ops import CacheLayer

FULL = CacheLayer(2, 64)
WINDOW = CacheLayer(1, 96, window=70)


def make_model(windows: list[int | None], max_context: int | None = 512, chunk: int = 64, **more: int) -> CacheModel:
    """A cache of one group per window, and its places."""
    layers = make_layers([(window, 0) for window in windows])
    return CacheModel(KVCache(layers, max_context, 3, chunk, **more), layers)  # type: ignore[arg-type]


def fill(model: CacheModel, slot: int, token_ids: list[int], start: int = 0, chunk: int = 64) -> None:
    """Compute token_ids[start:] of a slot, as an engine would."""
    path = make_path(token_ids)
    for begin in range(start, len(token_ids), chunk):
        end = min(begin + chunk, len(token_ids))
        model.cache.reserve(slot, end)
        model.write(slot, begin, path[:end])
        model.check(slot, path[:end], end - 1)


def leave_behind(model: CacheModel, token_ids: list[int], chunk: int = 64) -> None:
    """A sequence that comes and goes."""
    slot, cached = model.cache.open(token_ids)
    fill(model, slot, token_ids, cached, chunk)
    model.cache.keep(slot, token_ids)
    model.cache.close(slot)


def test_groups_are_one_per_reach_and_tables_are_as_wide_as_what_a_sequence_holds() -> None:
    layers = [WINDOW, FULL, WINDOW, CacheLayer(1, 32, window=9), CacheLayer(1, 32, window=9, num_sink_tokens=4)]
    cache = KVCache(layers, 1000, 3, 100, ("f16", "f16"))
    assert cache.group_of_layer == (0, 1, 0, 2, 3)
    assert [table.shape for table in cache.tables] == [(3, 4), (3, 16), (3, 3), (3, 4)]
    assert cache.columns_of_group == ((0, 4), (16, 1), (0, 3), (1, 3))
    assert all(table.dtype == np.int32 for table in cache.tables)
    expected = 3 * (2 * 4 * 64 * 96 * 4 + 16 * 2 * 64 * 64 * 4 + (3 + 4) * 64 * 32 * 4)
    assert cache.nbytes == 2 * expected and needed_bytes(layers, 1000, 3, 100, ("f16", "f16")) == expected
    cache.free()
    longer = KVCache(layers, 10**6, 1, 100)
    assert [table.shape[1] for table in longer.tables] == [4, 15625, 3, 4]
    longer.free()


def test_a_window_as_long_as_the_context_is_a_plain_table() -> None:
    cache = KVCache([CacheLayer(1, 32, window=70), CacheLayer(1, 32, window=70, num_sink_tokens=4)], 200, 1, 64)
    assert cache.columns_of_group == ((0, 4), (4, 1))[1:] * 2
    slot, _ = cache.open()
    for end in (64, 128, 192, 200):
        cache.reserve(slot, end)
    assert [table[slot].tolist() for table in cache.tables] == [[0, 1, 2, 3]] * 2


def test_without_a_limit_every_layer_needs_a_window() -> None:
    cache = KVCache([CacheLayer(1, 32, window=70, num_sink_tokens=4)], None, 1, 64)
    assert cache.tables[0].shape == (1, 5)
    slot, _ = cache.open()
    for end in range(64, 64_000, 64):
        cache.reserve(slot, end)
    assert cache.tables[0][slot].tolist()[0] == 0 and cache._groups[0].pool.num_free == 5
    cache.free()
    with pytest.raises(AssertionError, match="needs a window"):
        KVCache([FULL], None)


def test_low_blocks_are_handed_out_first_and_come_back() -> None:
    cache = KVCache([FULL], 256, 2)
    (first, _), (second, _) = cache.open(), cache.open()
    cache.reserve(first, 65)
    cache.reserve(second, 64)
    assert cache.tables[0].tolist() == [[0, 1, NO_BLOCK, NO_BLOCK], [2, NO_BLOCK, NO_BLOCK, NO_BLOCK]]
    cache.close(first)
    cache.reserve(second, 256)
    assert cache.tables[0].tolist() == [[NO_BLOCK] * 4, [2, 0, 1, 3]]
    assert cache.open() == (first, 0)
    with pytest.raises(ResourceError, match="all 2 cache slots"):
        cache.open()
    with pytest.raises(ResourceError, match="all 2 cache slots"):
        cache.fork(first)


def test_more_than_the_context_is_refused_with_both_numbers() -> None:
    cache = KVCache([FULL], 100, 1)
    slot, _ = cache.open()
    cache.reserve(slot, 100)
    with pytest.raises(ContextError, match=r"101.*100"):
        cache.reserve(slot, 101)


def test_rewind_is_exact_or_refused() -> None:
    cache = KVCache([FULL, WINDOW], 4096, 1, 10)  # a ring of 3 blocks
    slot, _ = cache.open()
    cache.reserve(slot, 192)
    cache.rewind(slot, 1)
    assert [(table[slot] != NO_BLOCK).sum() for table in cache.tables] == [1, 1]
    cache.reserve(slot, 192)
    cache.rewind(slot, 192)
    cache.reserve(slot, 193)  # lets go of tile 0
    before = [table.copy() for table in cache.tables]
    with pytest.raises(ContextError, match=r"from 193 to 132 tokens.*window of 70"):
        cache.rewind(slot, 132)  # position 132 sees 63, which is gone
    assert all((table == old).all() for table, old in zip(cache.tables, before, strict=True))
    cache.rewind(slot, 133)
    assert cache.length(slot) == 133
    cache.rewind(slot, 0)
    assert all((table == NO_BLOCK).all() for table in cache.tables)
    with pytest.raises(ContextError, match="cannot rewind to 1 "):
        cache.rewind(slot, 1)


def test_twins_share_until_they_write_and_a_copy_is_of_all_layers() -> None:
    model = make_model([None, 8])
    cache, ids = model.cache, [7] * 100
    slot, _ = cache.open()
    fill(model, slot, ids)
    twin = cache.fork(slot)
    assert all((table[slot] == table[twin]).all() for table in cache.tables)
    fill(model, twin, [*ids, 1, 2], 100)
    fill(model, slot, [*ids, 3], 100)
    assert cache.tables[0][slot, 0] == cache.tables[0][twin, 0], "nobody writes there any more"
    assert cache.tables[0][slot, 1] != cache.tables[0][twin, 1]
    model.check(slot, make_path([*ids, 3]), 101)
    model.check(twin, make_path([*ids, 1, 2]), 102)
    cache.close(slot)
    model.check(twin, make_path([*ids, 1, 2]), 102)
    cache.close(twin)
    model.check_holders([])


def test_a_step_after_step_costs_no_look_at_the_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_model([None, 8])
    slot, _ = model.cache.open()
    model.cache.reserve(slot, 65)
    for group in model.cache._groups:
        monkeypatch.setattr(group, "reserve", None)
    for length in range(66, 129):
        model.cache.reserve(slot, length)
        assert model.cache.length(slot) == length


LENGTHS = [1, 2, 31, 32, 33, 63, 64, 65, 130]


@pytest.mark.parametrize("length", LENGTHS)
def test_o17_all_but_the_last_token_is_found_again(length: int) -> None:
    model = make_model([None, 300])
    prompt = list(range(length))
    leave_behind(model, prompt)
    for ids, expected in [
        (prompt, length - 1),
        ([*prompt, 500], length),
        (prompt[:-1], max(length - 2, 0)),
        ([*prompt[: length // 2], 500, 501], length // 2),
        ([500, *prompt], 0),
    ]:
        slot, cached = model.cache.open(ids)
        assert cached == expected
        model.check(slot, make_path(ids[:cached]), cached)
        fill(model, slot, ids, cached)
        model.check(slot, make_path(ids), len(ids))
        model.cache.close(slot)
        model.check_holders([])


def test_a_running_sequence_is_shared_and_goes_on_unharmed() -> None:
    model = make_model([None, 100])
    first, _ = model.cache.open()
    fill(model, first, [5] * 90)
    model.cache.keep(first, [5] * 90)
    second, cached = model.cache.open([5] * 90 + [6])
    assert cached == 90 and (model.cache.tables[0][first] == model.cache.tables[0][second]).all()
    fill(model, first, [5] * 90 + [7] * 9, 90)
    fill(model, second, [5] * 90 + [6], 90)
    model.check(first, make_path([5] * 90 + [7] * 9), 99)
    model.check(second, make_path([5] * 90 + [6]), 91)
    third, cached = model.cache.open([5] * 200)
    assert cached == 90
    model.check(third, make_path([5] * 90), 90)


def test_the_same_text_twice_at_once_is_kept_once() -> None:
    model = make_model([None])
    slots = [model.cache.open()[0] for _ in range(2)]
    for slot in slots:
        fill(model, slot, [3] * 130)
    assert model.cache._groups[0].pool.num_free == model.cache._groups[0].pool.num_blocks - 6
    for slot in slots:
        model.cache.keep(slot, [3] * 130)
    assert (model.cache.tables[0][slots[0], :2] == model.cache.tables[0][slots[1], :2]).all()
    assert model.cache._groups[0].pool.num_free == model.cache._groups[0].pool.num_blocks - 4
    for slot in slots:
        model.cache.close(slot)
    model.check_holders([])
    assert [node.num_tokens for node in model.cache.tree] == [64, 64, 2]


@pytest.mark.parametrize("chunk", [1, 3, 8, 20])
def test_o25_a_window_is_used_again_whole_or_not_at_all(chunk: int) -> None:
    model = make_model([None, 8], 2048, chunk)
    turn, answer = [1] * 200, [2] * 300
    slot, _ = model.cache.open()
    fill(model, slot, turn, 0, chunk)
    model.cache.keep(slot, turn)  # the window as it is at the end of a prompt
    fill(model, slot, turn + answer, 200, chunk)
    model.cache.keep(slot, turn + answer)
    model.cache.close(slot)
    for ids, expected in [
        (turn + answer, 499),
        (turn + answer + [5], 500),
        (turn + [5] * 9, 200),
        (turn + answer[:150] + [5], 200),  # full layers have 350 tokens; the window there is gone
        (turn[:130], 0 if chunk < 64 else 129),
    ]:
        slot, cached = model.cache.open(ids)
        assert cached == expected
        fill(model, slot, ids, cached, chunk)
        model.check(slot, make_path(ids), len(ids))
        model.cache.close(slot)
        model.check_holders([])


def test_a_shorter_match_with_its_window_is_better_than_a_longer_one_without() -> None:
    model = make_model([None, 8], 2048, 8)
    leave_behind(model, [1] * 30 + [5], 8)
    leave_behind(model, [1] * 40 + [6] * 300, 8)
    slot, cached = model.cache.open([1] * 50)
    assert cached == 30
    fill(model, slot, [1] * 50, cached, 8)


def test_sink_tokens_are_part_of_what_must_be_there() -> None:
    layers = make_layers([(8, 4)])
    model = CacheModel(KVCache(layers, None, 1, 16), layers)
    leave_behind(model, [1] * 500, 16)
    slot, cached = model.cache.open([1] * 501)
    assert cached == 500 and model.cache.tables[0][slot, 0] != NO_BLOCK
    model.check(slot, make_path([1] * 500), 500)
    model.cache.close(slot)
    first = next(node for node in model.cache.tree if node.parent is model.cache.tree.root)
    model.cache.tree.forget(0, first.blocks[0])
    assert model.cache.open([1] * 501)[1] == 0


def test_when_memory_is_short_the_oldest_beginnings_go_leaf_by_leaf() -> None:
    layers = make_layers([(None, 0)])
    memory = needed_bytes(layers, 64 * 8, 1, 64)
    model = CacheModel(KVCache(layers, 64 * 8, 2, 64, memory_bytes=memory), layers)  # 8 blocks
    leave_behind(model, [1] * 64 * 3 + [2] * 64)
    leave_behind(model, [1] * 64 * 3 + [3] * 64)
    leave_behind(model, [4] * 64 * 2)
    assert [len(list(model.cache.tree)), model.cache._groups[0].pool.num_free] == [7, 1]
    leave_behind(model, [5] * 64 * 2)
    assert model.cache.open([1] * 64 * 3 + [2] * 65)[1] == 192, "the end of the oldest went"
    model.cache.close(0)
    assert model.cache.open([1] * 64 * 3 + [3] * 65)[1] == 256
    model.cache.close(0)
    leave_behind(model, [6] * 64 * 8)
    assert len(list(model.cache.tree)) == 8 and model.cache.open([6] * 512)[1] == 511


def test_a_sequence_alone_always_has_room_even_to_copy() -> None:
    layers = make_layers([(None, 0), (70, 0)])
    model = CacheModel(KVCache(layers, 320, 2, 1, memory_bytes=needed_bytes(layers, 320, 1, 1)), layers)
    slot, _ = model.cache.open()
    fill(model, slot, [1] * 300)
    model.cache.keep(slot, [1] * 300)  # every block is shared with the tree, and none is free
    fill(model, slot, [1] * 320, 300)
    model.check(slot, make_path([1] * 320), 319)
    model.check_holders([slot])
    other, cached = model.cache.open([1] * 320)
    assert cached == 256, "the tree let go of the block that had to be written"
    with pytest.raises(ResourceError, match="--cache-memory"):
        model.cache.reserve(other, 320)
    model.check(other, make_path([1] * 256), 256)
    model.cache.close(slot)
    fill(model, other, [1] * 320, 256)


def test_a_twin_s_share_of_what_is_kept_does_not_tie_up_what_comes_before() -> None:
    layers = make_layers([(None, 0)])
    model = CacheModel(KVCache(layers, 256, 3, 64, memory_bytes=needed_bytes(layers, 256, 1, 64)), layers)
    first, second = model.cache.open()[0], model.cache.open()[0]
    fill(model, first, [3] * 64)
    fill(model, second, [3] * 128)
    twin = model.cache.fork(second)
    for slot, length in ((first, 64), (second, 128)):
        model.cache.keep(slot, [3] * length)
        model.cache.close(slot)
    assert len(model.cache._groups[0].pool.idle) == 1, "the first tile's, of which the twin has another copy"
    fill(model, twin, [3] * 256, 128)
    model.check(twin, make_path([3] * 256), 255)
    model.check_holders([twin])


def test_a_place_that_outlives_the_process_is_asked_and_told() -> None:
    storage, prompt = MemoryStorage(), [1] * 200 + [2] * 60
    for stored in (0, 259, 259):
        model = make_model([None, 100])
        model.cache.storage = storage
        slot, cached = model.cache.open(prompt)
        assert cached == stored
        model.check(slot, make_path(prompt[:cached]), cached)
        fill(model, slot, prompt, cached)
        model.cache.keep(slot, prompt)
        model.cache.close(slot)
        model.check_holders([])
        assert storage.num_writes == 5, "what was read is not written again"
        reads, (slot, cached) = storage.num_reads, model.cache.open(prompt)
        assert cached == 259 and storage.num_reads == reads, "what is in memory is not read"
        model.cache.free()


@pytest.mark.parametrize(("damaged", "expected"), [({0}, 0), ({1}, 0), (set(), 199)])
def test_a_damaged_store_is_as_good_as_none(damaged: set[int], expected: int) -> None:
    storage, prompt = MemoryStorage(), [1] * 200
    for model in (make_model([None, 100]), make_model([None, 100])):
        model.cache.storage = storage
        slot, cached = model.cache.open(prompt)
        assert cached == (expected if storage.damaged is damaged else 0)
        fill(model, slot, prompt, cached)
        model.cache.keep(slot, prompt)
        model.cache.close(slot)
        model.check_holders([])
        storage.damaged = damaged
    assert storage.num_reads > 0


def test_a_store_larger_than_memory_gives_what_fits() -> None:
    storage, layers = MemoryStorage(), make_layers([(None, 0)])
    for size in (512, 192):
        memory = needed_bytes(layers, size, 1, 64)
        model = CacheModel(KVCache(layers, size, 2, 64, memory_bytes=memory), layers)
        model.cache.storage = storage
        if size == 512:
            leave_behind(model, [1] * 512)
            continue
        other, _ = model.cache.open()
        fill(model, other, [2] * 60)
        slot, cached = model.cache.open([1] * 192)
        assert cached == 128
        model.check(slot, make_path([1] * 128), 128)
        model.check_holders([other, slot])


def test_blocks_as_bytes() -> None:
    layers = [CacheLayer(2, 64), CacheLayer(1, 96, window=70), CacheLayer(1, 40)]
    cache = KVCache(layers, 128, 1, 16, ("f16", "f16"))
    assert (
        cache.block_bytes_of_group[0] == 2 * 64 * 64 * 4 + 64 * (40 + 64) * 2
        and cache.block_bytes_of_group[1] == 64 * 96 * 4
    )
    data = np.random.default_rng(0).bytes(cache.block_bytes_of_group[0])
    cache.write_block(0, 1, data)
    assert cache.read_block(0, 1) == data
    assert not any(cache.read_block(0, 0)) and not any(cache.read_block(0, 2)) and not any(cache.read_block(1, 1))
    with pytest.raises(AssertionError, match="not a block"):
        cache.write_block(1, 0, data)
    cache.free()
    with pytest.raises(ResourceError, match="closed"):
        cache.read_block(0, 0)
