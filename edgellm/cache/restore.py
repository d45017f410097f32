"""From the prefix tree to nodes with bytes, and back: what a saved state is made of.

Every function is short and is called between two steps of the engine, one node at a time, so that other answers go on
meanwhile. Knows no file. Next hops: `state.py` for the bytes on disk, `tree.py`.
"""

from __future__ import annotations

import math

from ..errors import ResourceError
from ..kernels.cache_layout import BLOCK_SIZE
from .kv import KVCache
from .pool import NO_BLOCK
from .state import StateNode
from .tree import Node, make_key, pack_tokens


def list_nodes(cache: KVCache) -> list[Node]:
    """All nodes of the tree, parents before children, the way to the most recently used one last."""
    ranks = [{block: rank for rank, block in enumerate(group.pool.idle)} for group in cache.groups]
    last_use = {node: _last_use(ranks, node) for node in cache.tree}
    listed: dict[Node, None] = {}
    for node in sorted(last_use, key=lambda node: last_use[node]):
        way = []
        at: Node | None = node
        while at is not None and at in last_use and at not in listed:
            way.append(at)
            at = at.parent
        listed.update(dict.fromkeys(reversed(way)))
    return list(listed)


def read_node(cache: KVCache, node: Node) -> StateNode | None:
    """Copy a listed node; None if it has left the tree since, or has nothing."""
    if not _is_attached(cache, node) or node.parent is None:
        return None
    blocks = {
        group: cache.read_block(group, block)
        for group, block in enumerate(node.blocks)
        if block != NO_BLOCK and node.held[group] == node.num_tokens
    }
    return StateNode(node.parent.key, node.token_ids, blocks) if blocks else None


class Restorer:
    """Puts nodes into a cache's tree, parents first; where memory is short, later ones take the place of earlier ones."""

    def __init__(self, cache: KVCache) -> None:
        self._cache = cache
        self._nodes: dict[bytes, Node] = {cache.tree.root.key: cache.tree.root}

    def put(self, state: StateNode) -> None:
        """Put a node under its parent, if that is there and running sequences leave room."""
        cache, parent = self._cache, self._nodes.get(state.parent)
        if parent is None or not _is_attached(cache, parent) or parent.num_tokens not in (0, BLOCK_SIZE):
            return
        tokens = pack_tokens(state.token_ids)
        held = [(group, block) for group, block in enumerate(parent.blocks) if block != NO_BLOCK]
        for group, block in held:
            cache.groups[group].pool.share(block)  # or making room for the child might take its parent
        blocks = [NO_BLOCK] * len(parent.blocks)
        try:
            there = parent.children.get(tokens)
            for group, data in state.blocks.items():
                if there is None or there.held[group] < len(state.token_ids):
                    blocks[group] = cache.groups[group].allocate()
                    held.append((group, blocks[group]))
                    cache.write_block(group, blocks[group], data)
            node, _ = cache.tree.insert(parent, tokens, blocks)
            self._nodes[make_key(parent.key, tokens)] = node
            cache.tree.prune(node)
        except ResourceError:
            return
        finally:
            for group, block in reversed(held):
                cache.groups[group].pool.release(block)

    def count(self) -> int:
        """Tokens of the nodes put that are still there."""
        nodes = {node for node in self._nodes.values() if _is_attached(self._cache, node)}
        return sum(node.num_tokens for node in nodes)


def _is_attached(cache: KVCache, node: Node) -> bool:
    while node.parent is not None:
        if node.parent.children.get(node.tokens) is not node:
            return False
        node = node.parent
    return node is cache.tree.root


def _last_use(ranks: list[dict[int, int]], node: Node) -> float:
    """A number that is larger for what was used later; what is in use is used now."""
    found = (ranks[group].get(block, math.inf) for group, block in enumerate(node.blocks) if block != NO_BLOCK)
    return max(found, default=-1.0)
