"""Reach and ring: which tiles a token needs, and that a table has a column for each of them."""

from __future__ import annotations

import pytest
from cache_model import visible
from hypothesis import given
from hypothesis import strategies as st

from edgellm.cache.groups import Reach, num_tiles, ring_blocks
from edgellm.kernels.cache_layout import BLOCK_SIZE


def test_ring_holds_window_and_chunk_at_any_alignment_and_no_block_more() -> None:
    for window, chunk in [(1, 1), (8, 1), (63, 2), (64, 1), (65, 64), (512, 512), (100, 7)]:
        live = window + chunk
        most = max((start + live - 1) // BLOCK_SIZE - start // BLOCK_SIZE + 1 for start in range(BLOCK_SIZE))
        assert ring_blocks(window, chunk) == most


@given(st.none() | st.integers(1, 300), st.integers(0, 64), st.integers(0, 1000))
def test_needed_tiles_are_those_of_the_positions_that_are_seen(window: int | None, sinks: int, length: int) -> None:
    reach = Reach(window, 0 if window is None else sinks, 1000, 64)
    tiles = [tile for tiles in reach.needed_tiles(length) for tile in tiles]
    assert tiles == sorted({int(p) // BLOCK_SIZE for p in visible(window, reach.num_sink_tokens, length, length)})


@pytest.mark.parametrize(
    ("window", "sinks", "context", "columns"),
    [
        (None, 0, 257, (5, 1, 5)),
        (512, 0, 256, (4, 1, 4)),  # no longer than the window: a plain table
        (512, 4, 10**9, (1, 17, 18)),
        (512, 0, None, (0, 17, 17)),
        (512, 64, 17 * 64, (17, 1, 17)),
        (512, 64, 18 * 64, (18, 1, 18)),
        (512, 64, 18 * 64 + 1, (1, 17, 18)),
    ],
)
def test_columns(window: int | None, sinks: int, context: int | None, columns: tuple[int, int, int]) -> None:
    reach = Reach(window, sinks, context, 512)
    assert (reach.kept, reach.ring, reach.columns) == columns


def test_num_tiles() -> None:
    assert [num_tiles(count) for count in (0, 1, 64, 65)] == [0, 1, 1, 2]
