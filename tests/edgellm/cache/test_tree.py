"""PrefixTree: nodes, their names, what is kept for what, and what goes first. (test_any_order.py has the rest.)"""

from __future__ import annotations

import itertools
import random
from hashlib import blake2b

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgellm.cache.pool import NO_BLOCK, BlockPool
from edgellm.cache.tree import Node, PrefixTree, common_tokens, make_key, pack_tokens, unpack_tokens


@pytest.fixture
def pools() -> list[BlockPool]:
    return [BlockPool(8), BlockPool(8)]


@pytest.fixture
def tree(pools: list[BlockPool]) -> PrefixTree:
    """Of a full group and one with a window."""
    return PrefixTree(pools, 0, b"root")


def add(
    tree: PrefixTree, pools: list[BlockPool], parent: Node, ids: list[int], groups: tuple[int, ...] = (0, 1)
) -> Node:
    """A node whose blocks only the tree holds afterwards."""
    blocks = [pool.allocate() if group in groups else NO_BLOCK for group, pool in enumerate(pools)]
    node, _ = tree.insert(parent, pack_tokens(ids), blocks)
    for group in groups:
        pools[group].release(blocks[group])
    return node


@given(st.lists(st.integers(-3, 3), max_size=70), st.lists(st.integers(-3, 3), max_size=70), st.integers(0, 70))
def test_common_tokens(left: list[int], right: list[int], alike: int) -> None:
    right = left[:alike] + right
    expected = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(left, right, strict=False)))
    assert common_tokens(pack_tokens(left), pack_tokens(right)) == expected
    assert unpack_tokens(pack_tokens(left)) == tuple(left)


def test_a_name_depends_on_all_tokens_and_on_nothing_else(tree: PrefixTree, pools: list[BlockPool]) -> None:
    ids = list(range(64))
    first = add(tree, pools, tree.root, ids)
    second = add(tree, pools, first, [1, -2])
    data = b"".join(i.to_bytes(4, "little", signed=True) for i in ids)
    assert first.key == blake2b(b"root" + data, digest_size=16).digest() == make_key(b"root", pack_tokens(ids))
    assert second.key == blake2b(first.key + b"\1\0\0\0\xfe\xff\xff\xff", digest_size=16).digest()
    assert first.token_ids == tuple(ids) and second.num_tokens == 2


def test_a_longer_node_takes_the_place_of_its_beginning(tree: PrefixTree, pools: list[BlockPool]) -> None:
    short = add(tree, pools, tree.root, [1, 2, 3])
    checkpoint = short.blocks[1]
    grown = add(tree, pools, tree.root, [1, 2, 3, 4], (0,))
    assert grown is short and grown.token_ids == (1, 2, 3, 4) and grown.key == make_key(b"root", grown.tokens)
    assert grown.held == [4, 3] and grown.blocks[1] == checkpoint, "a window as it was after three tokens"
    assert list(tree.root.children.values()) == [grown] and pools[0].num_free == 7
    again = add(tree, pools, tree.root, [1, 2], (0, 1))
    assert again is grown and grown.held == [4, 3] and [pool.num_free for pool in pools] == [7, 7]
    other = add(tree, pools, tree.root, [1, 2, 5])
    assert other is not grown and len(tree.root.children) == 2


def test_a_beginning_gives_a_longer_node_the_window_that_it_lacks(tree: PrefixTree, pools: list[BlockPool]) -> None:
    node = add(tree, pools, tree.root, [1, 2, 3, 4], (0,))
    assert add(tree, pools, tree.root, [1, 2]) is node
    assert node.held == [4, 2] and [pool.num_free for pool in pools] == [7, 7]


def test_a_block_is_kept_for_one_node_only(tree: PrefixTree, pools: list[BlockPool]) -> None:
    node = add(tree, pools, tree.root, [1, 2, 3])
    found, taken = tree.insert(tree.root, pack_tokens([1, 2, 9]), node.blocks)
    assert found is not node and taken == [] and node.held == [3, 3]
    tree.prune(found)
    assert list(tree) == [node]


def test_the_least_recently_used_leaf_goes_first(tree: PrefixTree, pools: list[BlockPool]) -> None:
    parent = add(tree, pools, tree.root, [0] * 64)
    pools[0].share(parent.blocks[0])
    old, new = add(tree, pools, parent, [1]), add(tree, pools, parent, [2])
    pools[0].release(parent.blocks[0])
    pools[0].share(old.blocks[0])
    pools[0].release(old.blocks[0])  # used again: the youngest now
    assert tree.evict(0) and list(parent.children.values()) == [old] and new.blocks == [NO_BLOCK, NO_BLOCK]
    assert tree.evict(0) and list(tree) == [parent], "not the parent, though it is older"
    assert tree.evict(0) and not list(tree) and not tree.evict(0)
    assert [pool.num_free for pool in pools] == [8, 8]


def test_what_a_sequence_uses_stays(tree: PrefixTree, pools: list[BlockPool]) -> None:
    node = add(tree, pools, tree.root, [1])
    pools[0].share(node.blocks[0])
    assert not tree.evict(0) and list(tree) == [node]
    assert tree.evict(1) and node.held == [1, 0] and list(tree) == [node], "its window goes alone"
    assert not tree.evict(1)
    pools[0].release(node.blocks[0])
    assert tree.evict(0) and not list(tree)


def test_a_path_that_leads_to_no_block_is_gone(tree: PrefixTree, pools: list[BlockPool]) -> None:
    node = tree.root
    for i in range(50):
        node, _ = tree.insert(node, pack_tokens([i] * 64), [NO_BLOCK, NO_BLOCK])
    end = add(tree, pools, node, [7], (1,))
    assert len(list(tree)) == 51
    assert tree.evict(1) and not list(tree) and max(end.blocks) == NO_BLOCK


def test_giving_up_is_not_slowed_by_what_is_kept() -> None:
    """Looks at nodes per block given up, in a tree of thousands: a few, wherever in the tree the oldest leaf is."""
    count = 4000
    pool = BlockPool(count)
    tree = PrefixTree([pool], 0, b"")
    rng = random.Random(0)
    for path in range(count // 8):
        held, node = [], tree.root
        for tile in range(8):
            block = pool.allocate()
            held.append(block)
            node, taken = tree.insert(node, pack_tokens([path if tile else path % 7, tile] * 32), [block])
            if not taken:
                pool.share(node.blocks[0])
                pool.release(held.pop())
                held.append(node.blocks[0])
        for block in reversed(held):
            pool.release(block)
    looks = 0

    class Counting(dict[int, Node]):
        def __getitem__(self, key: int) -> Node:
            nonlocal looks
            looks += 1
            return super().__getitem__(key)

    tree._nodes[0] = Counting(tree._nodes[0])
    for node in rng.sample(list(tree), 50):  # sequences in the middle of it
        while node.parent is not None:
            pool.share(node.blocks[0])
            node = node.parent
    freed = 0
    while freed < 1000 and tree.evict(0):
        freed += 1
    assert freed == 1000 and looks <= 2 * freed
