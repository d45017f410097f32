"""What a KVCache must hold, said without one: a place of a sequence holds a hash of all its tokens up to there.

Hashes are written to the cache's own memory, at both ends of every block (K of the group's first layer, V of its last), and
read through the tables as attention does. So a wrong table, a missing copy or a reused block of other tokens is seen. A
record of layers with a state holds the hash of the tokens that it comes after, at both ends.
"""

from __future__ import annotations

import ctypes
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgellm.cache.kv import KVCache
from edgellm.cache.pool import NO_BLOCK
from edgellm.cache.tree import NODE_BYTES, ROOT_KEY, TOKEN_BYTES, Node, common_tokens, make_key, pack_tokens
from edgellm.kernels.cache_layout import BLOCK_SIZE
from edgellm.kernels.ops import NO_RECORD, CacheLayer

Cells = NDArray[np.int64]


def make_layers(reaches: Sequence[tuple[int | None, int]]) -> list[CacheLayer]:
    """Two small layers for each (window, sink tokens)."""
    return [CacheLayer(1, 8, window, sinks) for window, sinks in reaches for _ in range(2)]


def extend_path(path: list[int], token_ids: Sequence[int]) -> None:
    """Append to a list of hashes those of more tokens."""
    for token_id in token_ids:
        path.append(hash((path[-1] if path else 0, token_id)) >> 2)


def make_path(token_ids: Sequence[int]) -> list[int]:
    """The hash of each beginning of token_ids."""
    path: list[int] = []
    extend_path(path, token_ids)
    return path


class CacheModel:
    """A cache, and its places as numbers: per group two i64[blocks, 64]."""

    def __init__(self, cache: KVCache, layers: Sequence[CacheLayer]) -> None:
        self.cache = cache
        self.reaches = [group.reach for group in cache._groups]
        self.cells: list[tuple[Cells, Cells]] = []
        for number, group in enumerate(cache._groups):
            own = [layer for layer, g in enumerate(cache.group_of_layer) if g == number]
            first, last = cache.address(own[0])[0], cache.address(own[-1])[1]
            dim, shape = layers[own[0]].head_dim, (group.pool.num_blocks, cache.block_bytes_of_group[number])
            self.cells.append((_view(first, *shape, dim * 2), _view(last, *shape, dim * 2)))

        self.records: Cells | None = None
        if cache.states is not None:
            memory = (ctypes.c_uint8 * cache.states.nbytes).from_address(cache.states.base)
            self.records = np.ctypeslib.as_array(memory).view(np.int64).reshape(cache.states.num_records, -1)

    def columns(self, group: int, tiles: NDArray[np.int64]) -> NDArray[np.int64]:
        """Where the contract says that tiles are."""
        kept, ring = self.cache.columns_of_group[group]
        return np.where(tiles < kept, tiles, kept + (tiles - kept) % ring)

    def write(self, slot: int, start: int, path: Sequence[int]) -> None:
        """Fill the places of path[start:], which the slot must have and share with nobody."""
        positions = np.arange(start, len(path))
        for number, group in enumerate(self.cache._groups):
            blocks = group.table[slot, self.columns(number, positions // BLOCK_SIZE)]
            assert (blocks != NO_BLOCK).all()
            assert all(group.pool.count(block) == 1 for block in set(blocks.tolist())), "written while shared"
            for cells in self.cells[number]:
                cells[blocks, positions % BLOCK_SIZE] = path[start:]

    def write_states(self, path: Sequence[int], start: int, read: int, writes: NDArray[np.int32]) -> None:
        """Do what a step does to records: it reads one, and writes some after tokens of path[start:]."""
        assert self.records is not None
        assert (self.records[read, [0, -1]] == (path[start - 1] if start else 0)).all(), "another's state is read"
        for place, record in enumerate(writes.tolist(), start):
            if record != NO_RECORD:
                self.records[record, [0, -1]] = path[place]

    def check_states(self, paths: Mapping[int, Sequence[int]]) -> None:
        """Slots and snapshots hold what they say, record 0 is zeros, and counts are holders."""
        states = self.cache.states
        if states is None:
            return
        assert self.records is not None and not self.records[0].any()
        counts = {0: 1}
        for slot, held in enumerate(states._held):
            assert slot in paths or not held
            for place, record in held.items():
                assert (self.records[record, [0, -1]] == (paths[slot][place - 1] if place else 0)).all()
                counts[record] = counts.get(record, 0) + 1
        in_use = set(counts)
        kept = [record for _, _, record in states.snapshots]
        for record in kept:
            counts[record] = counts.get(record, 0) + 1
        assert len(kept) == len(set(kept)) == len(states.snapshots)
        assert {record: states.pool.count(record) for record in counts} == counts
        assert states.pool.num_free == states.num_records - len(counts)
        assert set(states.pool.idle) == set(kept) - in_use

    def has_snapshot(self, token_ids: Sequence[int]) -> bool:
        """True if the state after just these tokens is kept; that after none always is."""
        states, tokens, key = self.cache.states, pack_tokens(token_ids), ROOT_KEY
        if states is None or not tokens:
            return True
        last = (len(tokens) - TOKEN_BYTES) // NODE_BYTES * NODE_BYTES
        for start in range(0, last, NODE_BYTES):
            key = make_key(key, tokens[start : start + NODE_BYTES])
        return any((a, b) == (key, tokens[last:]) for a, b, _ in states.snapshots)

    def check(self, slot: int, path: Sequence[int], position: int) -> None:
        """All that `position` sees of the positions that path has is where the tables say."""
        for number, group in enumerate(self.cache._groups):
            seen = visible(group.reach.window, group.reach.num_sink_tokens, position, len(path))
            blocks = group.table[slot, self.columns(number, seen // BLOCK_SIZE)]
            assert (blocks != NO_BLOCK).all(), f"{position} sees positions of group {number} without a block"
            for cells in self.cells[number]:
                assert (cells[blocks, seen % BLOCK_SIZE] == np.array(path, np.int64)[seen]).all()

    def has_all(self, slot: int, position: int) -> bool:
        """True if whatever `position` sees before itself has a block."""
        return all(
            group.block(slot, int(seen) // BLOCK_SIZE) != NO_BLOCK
            for group in self.cache._groups
            for seen in visible(group.reach.window, group.reach.num_sink_tokens, position, position)
        )

    def check_holders(self, slots: Collection[int]) -> None:
        """Counts are holders, the tree's blocks hold what its tokens say, and what is idle can be had back."""
        for number, group in enumerate(self.cache._groups):
            counts: dict[int, int] = {}
            for slot in range(self.cache.max_sequences):
                held = dict(group.tiles(slot))
                assert slot in slots or not held
                assert len(held) <= group.reach.columns
                row = np.full(group.reach.columns, NO_BLOCK)
                for tile, block in held.items():
                    row[self.columns(number, np.array([tile]))] = block
                    counts[block] = counts.get(block, 0) + 1
                assert (group.table[slot] == row).all()
            kept = [node.blocks[number] for node in self.cache.tree if node.blocks[number] != NO_BLOCK]
            assert len(kept) == len(set(kept)), "a block is kept for two nodes"
            in_use = set(counts)
            for block in kept:
                counts[block] = counts.get(block, 0) + 1
                assert group.pool.is_kept(block)
            assert {block: group.pool.count(block) for block in counts} == counts
            assert group.pool.num_free == group.pool.num_blocks - len(counts)
            assert set(group.pool.idle) == set(kept) - in_use
        self._check_nodes()

    def _check_nodes(self) -> None:
        for node in self.cache.tree:
            assert 1 <= node.num_tokens <= BLOCK_SIZE and (not node.children or node.num_tokens == BLOCK_SIZE)
            assert node.children or max(node.blocks) != NO_BLOCK, "a leaf of no use"
            assert node.parent is not None and node.parent.children[node.tokens] is node
            for other in node.parent.children.values():
                shorter = min(other.num_tokens, node.num_tokens)
                assert other is node or common_tokens(other.tokens, node.tokens) < shorter
            path, start = tokens_to(node), BLOCK_SIZE * depth(node)
            hashes = np.array(make_path(path)[start:], np.int64)
            for number, group in enumerate(self.cache._groups):
                if group.reach.window == 1 and group.reach.num_sink_tokens == 0:
                    continue  # nobody ever reads an earlier token there
                for cells in self.cells[number] if node.held[number] else ():
                    count = node.held[number]
                    assert (cells[node.blocks[number], :count] == hashes[:count]).all(), "kept for other tokens"


class Stored(NamedTuple):
    """A node of MemoryStorage."""

    parent_key: bytes
    token_ids: tuple[int, ...]
    groups: tuple[int, ...]


class MemoryStorage:
    """What `disk.py` does, in a dict. damaged: reads of these groups fail."""

    def __init__(self) -> None:
        self.nodes: dict[bytes, dict[tuple[int, ...], dict[int, bytes]]] = {}
        self.damaged: set[int] = set()
        self.num_writes = self.num_reads = 0

    def find(self, parent_key: bytes, token_ids: Sequence[int]) -> Stored | None:
        best, most = None, 0
        for ids, groups in self.nodes.get(parent_key, {}).items():
            common = common_tokens(pack_tokens(ids), pack_tokens(token_ids))
            if common > most:
                best, most = Stored(parent_key, ids, tuple(groups)), common
        return best

    def read(self, node: Stored, group: int) -> bytes | None:
        self.num_reads += 1
        return None if group in self.damaged else self.nodes[node.parent_key][node.token_ids][group]

    def write(self, parent_key: bytes, token_ids: Sequence[int], groups: Mapping[int, bytes]) -> None:
        self.num_writes += 1
        self.nodes.setdefault(parent_key, {}).setdefault(tuple(token_ids), {}).update(groups)


def visible(window: int | None, sinks: int, position: int, length: int) -> NDArray[np.int64]:
    """The positions below `length` that `position` sees."""
    every = np.arange(min(position + 1, length))
    return every if window is None else every[(every > position - window) | (every < sinks)]


def depth(node: Node) -> int:
    """The tile that a node stands for."""
    return 0 if node.parent is None or node.parent.parent is None else 1 + depth(node.parent)


def tokens_to(node: Node) -> list[int]:
    """All tokens from the root to the end of a node."""
    return [] if node.parent is None else [*tokens_to(node.parent), *node.token_ids]


def longest_usable(model: CacheModel, token_ids: Sequence[int]) -> int:
    """The longest beginning of all but the last token that is held whole, its state too, found by trying every length."""
    known: list[set[tuple[int, ...]]] = [set() for _ in model.reaches]
    for node in model.cache.tree:
        path, start = tokens_to(node), BLOCK_SIZE * depth(node)
        for number, held in enumerate(node.held):
            known[number].update(tuple(path[: start + count]) for count in range(1, held + 1))
    for length in range(len(token_ids) - 1, 0, -1):
        for number, reach in enumerate(model.reaches):
            seen = visible(reach.window, reach.num_sink_tokens, length, length)
            tiles = {int(position) // BLOCK_SIZE for position in seen}
            if any(tuple(token_ids[: min(length, (tile + 1) * BLOCK_SIZE)]) not in known[number] for tile in tiles):
                break
        else:
            if model.has_snapshot(token_ids[:length]):
                return length
    return 0


def _view(address: int, num_blocks: int, block_bytes: int, token_bytes: int) -> Cells:
    """i64[blocks, 64] over f16 tiles in blocks: the first 8 bytes of each token's share."""
    nbytes = (num_blocks - 1) * block_bytes + BLOCK_SIZE * token_bytes
    memory = np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(address)).view(np.int64)
    return np.lib.stride_tricks.as_strided(memory, (num_blocks, BLOCK_SIZE), (block_bytes, token_bytes))
