"""CacheArrays: where each layer's K and V lie in the map, and what they cost."""

from __future__ import annotations

import ctypes
import itertools
import mmap

import numpy as np
import psutil  # type: ignore[import-untyped,unused-ignore]
import pytest

from edgellm.cache import arrays
from edgellm.cache.arrays import CacheArrays
from edgellm.cache.memory import DEFAULT_FORMATS
from edgellm.errors import ResourceError
from edgellm.kernels.cache_formats import FORMATS, get
from edgellm.kernels.ops import CacheLayer

FULL = CacheLayer(2, 64)


@pytest.mark.parametrize(
    "formats", [DEFAULT_FORMATS, *((name, name) for name in FORMATS if name != "f16"), ("q8_0", "q4_h")]
)
def test_tiles_are_aligned_zeroed_writable_apart_and_gone_after_free(formats: tuple[str, str]) -> None:
    layers, blocks = [CacheLayer(1, 96, window=5), FULL, CacheLayer(3, 80)], [4, 7]
    arrays = CacheArrays(layers, blocks, formats)
    spans = []
    for index, layer in enumerate(layers):
        group = 0 if layer.window else 1
        k_bytes = layer.num_kv_heads * get(formats[0]).k_tile_bytes(layer.head_dim)
        v_bytes = layer.num_kv_heads * get(formats[1]).v_tile_bytes(layer.head_dim)
        for block in range(blocks[group]):
            for first, nbytes in zip(arrays.address(index), (k_bytes, v_bytes), strict=True):
                address = first + block * arrays.block_bytes_of_group[group]
                assert address % 64 == 0
                array = np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(address))
                assert not array.any()
                array[:] = 1  # a neighbour that overlaps is no longer zero
                spans.append((address, address + nbytes))
    spans.sort()
    assert all(end == start for (_, end), (start, _) in itertools.pairwise(spans))
    assert spans[-1][1] - spans[0][0] == arrays.nbytes
    arrays.free()
    arrays.free()
    for use in (lambda: arrays.address(0), lambda: arrays.read(0, 0), lambda: arrays.copy(0, 0, 1)):
        with pytest.raises(ResourceError, match="closed"):
            use()


def test_untouched_blocks_cost_no_memory() -> None:
    process = psutil.Process()
    before = process.memory_info().rss
    arrays = CacheArrays([FULL] * 4, [3125], DEFAULT_FORMATS)
    assert arrays.nbytes > 400e6
    assert process.memory_info().rss - before < 40e6
    arrays.free()


def test_a_copy_is_one_block_of_every_layer_of_its_group_and_nothing_else() -> None:
    arrays = CacheArrays([CacheLayer(1, 33), FULL, CacheLayer(1, 8, window=9)], [3, 3], ("f16", "f16"))
    rng = np.random.default_rng(0)
    data = {(group, block): rng.bytes(arrays.block_bytes_of_group[group]) for group in range(2) for block in range(3)}
    for (group, block), content in data.items():
        arrays.write(group, block, content)
    arrays.copy(0, 2, 1)
    data[0, 1] = data[0, 2]
    assert {key: arrays.read(*key) for key in data} == data
    second_layer = arrays.address(1)[0] + arrays.block_bytes_of_group[0]  # in block 1
    assert ctypes.string_at(second_layer, 9) == data[0, 1][64 * (33 + 64) * 2 :][:9]
    arrays.free()


@pytest.mark.skipif(not hasattr(mmap, "MADV_HUGEPAGE"), reason="this system has no advice for large pages")
def test_only_large_blocks_are_on_large_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    advised: list[tuple[int, int]] = []
    monkeypatch.setattr(arrays, "use_large_pages", lambda pages, start, nbytes: advised.append((start, nbytes)))
    layer = CacheLayer(8, 64)
    block = CacheArrays([layer], [1], ("i16", "i16")).block_bytes_of_group[0]
    assert block < arrays.LARGE_BLOCK and advised == []
    many = CacheArrays([layer] * 16, [3], ("i16", "i16"))
    assert advised == [(0, 3 * 16 * block)] and 16 * block >= arrays.LARGE_BLOCK
    monkeypatch.undo()
    CacheArrays([layer] * 16, [3], ("i16", "i16")).write(0, 2, bytes(16 * block))
    many.free()
