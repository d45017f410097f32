"""The prefix tree: which tokens, after which others, the kept blocks belong to. Ids and tokens only, no arrays.

A node is one block's worth of tokens. Only full nodes have children, so a path from the root is a text from its
beginning, and equal beginnings lie in the tree once. Next hops: `prefix.py` looks a prompt up, `pool.py` counts holders.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b

from ..kernels.cache_layout import BLOCK_SIZE
from .pool import NO_BLOCK, BlockPool

TOKEN_BYTES = 4
NODE_BYTES = BLOCK_SIZE * TOKEN_BYTES
KEY_BYTES = 16
ROOT_KEY = bytes(KEY_BYTES)
"""The key of no tokens at all."""


def pack_tokens(token_ids: Iterable[int]) -> bytes:
    """Token ids as little-endian int32: how the tree compares and names them."""
    ids = tuple(token_ids)
    return struct.pack(f"<{len(ids)}i", *ids)


def unpack_tokens(tokens: bytes) -> tuple[int, ...]:
    """The ids in packed tokens."""
    return struct.unpack(f"<{len(tokens) // TOKEN_BYTES}i", tokens)


def make_key(parent_key: bytes, tokens: bytes) -> bytes:
    """The name of a node: a hash of all tokens from the root on, the same in every process."""
    return blake2b(parent_key + tokens, digest_size=KEY_BYTES).digest()


def common_tokens(left: bytes, right: bytes) -> int:
    """How many tokens two packed texts begin with alike."""
    low, high = 0, min(len(left), len(right)) // TOKEN_BYTES
    while low < high:  # the first `low` are alike, the first `high` + 1 are not
        middle = (low + high + 1) // 2
        if left[low * TOKEN_BYTES : middle * TOKEN_BYTES] == right[low * TOKEN_BYTES : middle * TOKEN_BYTES]:
            low = middle
        else:
            high = middle - 1
    return low


class Node:
    """One block of tokens after those of its parent.

    tokens: 1 to 64 packed ids. children: full nodes' only, by their tokens. blocks: per group its block or NO_BLOCK.
    held: per group how many of the tokens, from the first on, the block has.
    """

    __slots__ = ("blocks", "children", "held", "key", "parent", "tokens")

    def __init__(self, parent: Node | None, tokens: bytes, key: bytes, num_groups: int) -> None:
        self.parent = parent
        self.tokens = tokens
        self.key = key
        self.children: dict[bytes, Node] = {}
        self.blocks = [NO_BLOCK] * num_groups
        self.held = [0] * num_groups

    @property
    def token_ids(self) -> tuple[int, ...]:
        """Its ids."""
        return unpack_tokens(self.tokens)

    @property
    def num_tokens(self) -> int:
        """How many ids it has."""
        return len(self.tokens) // TOKEN_BYTES

    def similar(self, tokens: bytes) -> Iterator[tuple[Node, int]]:
        """Children that begin as `tokens` do, each with for how many tokens."""
        first = tokens[:TOKEN_BYTES]
        for node in self.children.values():
            if node.tokens.startswith(first):
                yield node, common_tokens(node.tokens, tokens)


class PrefixTree:
    """What sequences leave behind, for as long as there is room.

    pools: of each group; the tree is a holder of every block that it names. full: the group of the layers that see all:
    without its block a node answers nothing, so the two go together. None if every layer has a window.
    """

    def __init__(self, pools: Sequence[BlockPool], full: int | None, root_key: bytes) -> None:
        self._pools = tuple(pools)
        self._full = full
        self.root = Node(None, b"", root_key, len(self._pools))
        self._domains: dict[bytes, Node] = {}
        self._nodes: list[dict[int, Node]] = [{} for _ in self._pools]  # per group, by block

    def root_of(self, domain: bytes) -> Node:
        """The root of the texts whose keys and values depend on `domain` too; b"" for those that depend on nothing else."""
        if not domain:
            return self.root
        if domain not in self._domains:
            self._domains = {name: root for name, root in self._domains.items() if root.children}
            self._domains[domain] = Node(None, b"", make_key(self.root.key, domain), len(self._pools))
        return self._domains[domain]

    def __iter__(self) -> Iterator[Node]:
        """All nodes of the domain b"" but the root, parents first."""
        stack = list(self.root.children.values())
        while stack:
            node = stack.pop()
            yield node
            stack += node.children.values()

    def insert(self, parent: Node, tokens: bytes, blocks: Sequence[int]) -> tuple[Node, list[int]]:
        """Keep a caller's blocks (NO_BLOCK: none) for `tokens` after those of `parent`.

        -> the node that now stands for them, and the groups that took the caller's block: a group that has one with as
        many tokens stays with its own. A node that is a beginning of another is never beside it: the longer one stands.
        A block is kept once: one that stands for other tokens already (of which a sequence shares the first) is not taken.
        """
        node = parent.children.get(tokens)
        if node is None:
            node = self._find_relative(parent, tokens)
            if node is None:
                node = Node(parent, tokens, make_key(parent.key, tokens), len(self._pools))
                parent.children[tokens] = node
            elif len(node.tokens) < len(tokens):
                del parent.children[node.tokens]
                node.tokens, node.key = tokens, make_key(parent.key, tokens)
                parent.children[tokens] = node
        count = len(tokens) // TOKEN_BYTES
        taken = [
            g
            for g, block in enumerate(blocks)
            if block != NO_BLOCK and node.held[g] < count and not self._pools[g].is_kept(block)
        ]
        for group in taken:
            self._drop_block(node, group)
            self._pools[group].keep(blocks[group])
            node.blocks[group], node.held[group] = blocks[group], count
            self._nodes[group][blocks[group]] = node
        return node, taken

    def evict(self, group: int) -> bool:
        """Free the block of `group` that has been of no use for the longest. -> False if every one is in use.

        In a group with a window a node's block goes alone. A full block goes with its node, the deepest first: who gave
        up a path gave up its end first, so the first idle node is a leaf, but for children that have lost their full block.
        """
        idle = self._pools[group].idle
        if group != self._full:
            for block in idle:
                node = self._nodes[group][block]
                self._drop_block(node, group)
                self.prune(node)
                return True
            return False
        for block in idle:
            node = self._nodes[group][block]
            if all(child.blocks[group] == NO_BLOCK for child in node.children.values()):
                self._remove(node)
                return True
        for block in idle:  # twins can hold what follows an idle node, and a copy of their own of what it stands for
            self._remove(self._nodes[group][block])
            return True
        return False

    def forget(self, group: int, block: int) -> None:
        """Let go of a block that a sequence is about to write to, because there is no other left to write to."""
        node = self._nodes[group][block]
        if group == self._full:
            self._remove(node)
        else:
            self._drop_block(node, group)
            self.prune(node)

    def prune(self, node: Node) -> None:
        """Remove `node` and those above it while they lead to no block."""
        while node.parent is not None and not node.children and max(node.blocks) == NO_BLOCK:
            parent = node.parent
            if parent.children.get(node.tokens) is node:
                del parent.children[node.tokens]
            node = parent

    def clear(self) -> None:
        """Let go of every block."""
        for root in (self.root, *self._domains.values()):
            for node in list(root.children.values()):
                self._remove(node)

    def _find_relative(self, parent: Node, tokens: bytes) -> Node | None:
        """The child that begins with `tokens`, or that `tokens` begin with: there is at most one of the latter."""
        for node, common in parent.similar(tokens):
            if common * TOKEN_BYTES == min(len(node.tokens), len(tokens)):
                return node
        return None

    def _drop_block(self, node: Node, group: int) -> None:
        block = node.blocks[group]
        if block != NO_BLOCK:
            node.blocks[group], node.held[group] = NO_BLOCK, 0
            del self._nodes[group][block]
            self._pools[group].forget(block)

    def _remove(self, node: Node) -> None:
        """Drop a node and all below it."""
        stack, parent = [node], node.parent
        while stack:
            below = stack.pop()
            stack += below.children.values()
            below.children.clear()
            for group in range(len(self._pools)):
                self._drop_block(below, group)
        assert parent is not None, "the root stays"
        del parent.children[node.tokens]
        self.prune(parent)
