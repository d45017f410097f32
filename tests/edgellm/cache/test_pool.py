"""BlockPool: nobody owns a block twice, counts are right, low ids go first."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgellm.cache.pool import BlockPool
from edgellm.errors import ResourceError


@given(st.integers(0, 6), st.lists(st.tuples(st.sampled_from(["allocate", "share", "release"]), st.integers(0, 20))))
def test_pool_equals_a_plain_statement_of_it(num_blocks: int, actions: list[tuple[str, int]]) -> None:
    pool = BlockPool(num_blocks)
    counts = dict.fromkeys(range(num_blocks), 0)
    for action, pick in actions:
        held = [block for block, count in counts.items() if count]
        free = [block for block, count in counts.items() if not count]
        if action == "allocate" and free:
            assert pool.allocate() == free[0]
            counts[free[0]] = 1
        elif action == "allocate":
            with pytest.raises(ResourceError, match=f"all {num_blocks} "):
                pool.allocate()
        elif held:
            block = held[pick % len(held)]
            (pool.share if action == "share" else pool.release)(block)
            counts[block] += 1 if action == "share" else -1
        assert [pool.count(block) for block in counts] == list(counts.values())
        assert pool.num_free == sum(count == 0 for count in counts.values())


def test_a_huge_pool_costs_nothing_until_it_is_used() -> None:
    pool = BlockPool(10**15)
    assert [pool.allocate() for _ in range(3)] == [0, 1, 2]
    assert pool.num_free == 10**15 - 3


def test_a_free_block_is_neither_shared_nor_released() -> None:
    pool = BlockPool(2)
    block = pool.allocate()
    pool.release(block)
    with pytest.raises(AssertionError):
        pool.release(block)
    with pytest.raises(AssertionError):
        pool.share(block)
