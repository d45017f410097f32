"""How much of a prompt the kept blocks answer: the longest beginning, to the token, that can be used exactly.

A beginning of L tokens is usable if every group still has all that position L sees: a group of full layers every tile, a
group with a window the tiles that the window reaches back to and those of the sink tokens. A tile's first tokens may come
from a node that goes on differently. Looks only; `kv.py` takes the blocks. Next hops: `tree.py`, `storage.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..kernels.cache_layout import BLOCK_SIZE
from .groups import Reach
from .storage import Storage, StoredNode
from .tree import NODE_BYTES, TOKEN_BYTES, Node, PrefixTree, common_tokens, make_key, pack_tokens, unpack_tokens


class Source(NamedTuple):
    """Where the block of a tile is found: in a node of the tree, or in a stored one."""

    group: int
    tile: int
    node: Node | StoredNode


class Prefix(NamedTuple):
    """`num_tokens` of a prompt are answered by these blocks, tiles in order within each group."""

    num_tokens: int
    sources: list[Source]


class _Tile:
    """The nodes that may answer one tile of a prompt: children of the node that answers the tile before.

    exact: the node with just these 64 tokens. parent: None where only the storage knows the path.
    """

    def __init__(self, parent: Node | None, parent_key: bytes, tokens: bytes, storage: Storage | None) -> None:
        self.tokens = tokens
        self.parent = parent
        self.exact = parent.children.get(tokens) if parent is not None and len(tokens) == NODE_BYTES else None
        self._parent_key = parent_key
        self._storage = storage
        self._stored: StoredNode | None = None
        self._stored_tokens = 0
        self._similar: list[tuple[Node, int]] | None = None

    @property
    def key(self) -> bytes:
        """The key of a node with these tokens."""
        return self.exact.key if self.exact is not None else make_key(self._parent_key, self.tokens)

    def leads_on(self, full: int | None) -> bool:
        """True if a beginning may go on beyond this tile: all of it is known, and in the full layers, if any, stored."""
        if self.exact is not None:
            return True
        stored, common = self._find_stored()
        return stored is not None and common == BLOCK_SIZE and (full is None or full in stored.groups)

    def whole(self, group: int) -> Node | StoredNode | None:
        """What answers all 64 tokens in `group`, None if nothing does."""
        if self.exact is not None and self.exact.held[group] == BLOCK_SIZE:
            return self.exact
        stored, common = self._find_stored()
        return stored if stored is not None and common == BLOCK_SIZE and group in stored.groups else None

    def best(self, group: int) -> tuple[int, Node | StoredNode | None]:
        """What answers most of the first tokens in `group`, and how many."""
        if self.exact is not None and self.exact.held[group] == BLOCK_SIZE:
            return BLOCK_SIZE, self.exact
        most: int = 0
        found: Node | StoredNode | None = None
        for node, common in self._find_similar():
            if min(common, node.held[group]) > most:
                most, found = min(common, node.held[group]), node
        if most * TOKEN_BYTES < len(self.tokens):
            stored, common = self._find_stored()
            if stored is not None and common > most and group in stored.groups:
                most, found = common, stored
        return most, found

    def _find_similar(self) -> list[tuple[Node, int]]:
        if self._similar is None:
            self._similar = [] if self.parent is None else list(self.parent.similar(self.tokens))
        return self._similar

    def _find_stored(self) -> tuple[StoredNode | None, int]:
        if self._storage is not None:
            self._stored = self._storage.find(self._parent_key, unpack_tokens(self.tokens))
            if self._stored is not None:
                self._stored_tokens = common_tokens(pack_tokens(self._stored.token_ids), self.tokens)
            self._storage = None  # asked once
        return self._stored, self._stored_tokens


def find_prefix(
    tree: PrefixTree,
    reaches: Sequence[Reach],
    full: int | None,
    tokens: bytes,
    storage: Storage | None = None,
    domain: bytes = b"",
) -> Prefix:
    """The longest usable beginning of packed `tokens`. full: the group without a window, if there is one. domain: see `kv.py`."""
    needy = [group for group, reach in enumerate(reaches) if any(map(len, reach.needed_tiles(1)))]
    if not needy:
        return Prefix(len(tokens) // TOKEN_BYTES, [])  # each token sees itself only
    tiles = _walk(tree.root_of(domain), full, tokens, storage)
    # Windows first: they are what is missing, and full layers have the most tiles to list.
    order = sorted(enumerate(reaches), key=lambda item: item[1].window is None)
    for last in range(len(tiles) - 1, -1, -1):
        best = [tiles[last].best(group) for group in needy]
        usable = min((count for count, _ in best), default=0)
        if usable == 0:
            continue
        length = last * BLOCK_SIZE + usable
        sources = [Source(group, last, node) for group, (_, node) in zip(needy, best, strict=True) if node is not None]
        before = _take_whole(tiles, order, length, last)
        if before is not None:
            return Prefix(length, before + sources)
    return Prefix(0, [])


def _walk(root: Node, full: int | None, tokens: bytes, storage: Storage | None) -> list[_Tile]:
    """Tiles of the prompt as far as nodes lead, and one more, in which they may lead a part of the way."""
    tiles: list[_Tile] = []
    node: Node | None = root
    key = root.key
    for start in range(0, len(tokens), NODE_BYTES):
        tile = _Tile(node, key, tokens[start : start + NODE_BYTES], storage)
        tiles.append(tile)
        if len(tile.tokens) < NODE_BYTES:
            break
        if not tile.leads_on(full):
            break
        node, key = tile.exact, tile.key
    return tiles


def _take_whole(
    tiles: Sequence[_Tile], reaches: Sequence[tuple[int, Reach]], length: int, last: int
) -> list[Source] | None:
    """The blocks that a beginning of `length` tokens needs before its last tile; None if one is missing."""
    sources = []
    for group, reach in reaches:
        for needed in reach.needed_tiles(length):
            for tile in needed:
                if tile == last:
                    break
                node = tiles[tile].whole(group)
                if node is None:
                    return None
                sources.append(Source(group, tile, node))
    return sources
