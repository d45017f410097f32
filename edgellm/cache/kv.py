"""Where cached keys and values lie: block tables for the sequences that run, and what earlier ones left for the next.

A slot is a running sequence. `keep` puts what it holds into the prefix tree, `open` begins a slot with as much of a prompt
as the tree, or the storage behind it, can answer: the same bits as computing it. A block that more than one holder has is
copied before it is written. Layers with a state have records beside that (`states.py`): then a beginning, or what a rewind
leaves, ends where a record was written. Knows no weights, no text and no numbers. Next hops: `groups.py`, `tree.py`,
`prefix.py`, `arrays.py`; attention reads through `KVCache.address` and `KVCache.tables`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial

from ..errors import ContextError, ResourceError
from ..kernels import cache_formats
from ..kernels.cache_layout import BLOCK_SIZE
from ..kernels.ops import CacheLayer, StateLayer
from . import memory
from .arrays import CacheArrays
from .groups import CacheGroup, layer_groups, list_reaches, num_tiles
from .memory import DEFAULT_FORMATS, Formats
from .pool import NO_BLOCK, BlockPool
from .prefix import Prefix, Source, find_prefix
from .states import StateCache, state_bytes
from .storage import Storage
from .tree import NODE_BYTES, ROOT_KEY, TOKEN_BYTES, Node, PrefixTree, pack_tokens, unpack_tokens


class KVCache:
    """Keys and values of all layers for up to `max_sequences` slots of `max_context` tokens each.

    layers: what attention keeps. max_context: None, where every layer has a window: no limit. formats: names of those of K
    and V. memory_bytes: of all blocks; at least one sequence of max_context must fit. None: twice what max_sequences such
    sequences need, or just that where the machine has no more. root_key: goes into the names of all nodes of the tree.
    state_layers: what ops with a state keep; their records count as memory too.

    tables: per group i32[max_sequences, columns], live views that change as slots grow.
    columns_of_group: (kept, ring): tile t (positions 64 t to 64 t + 63) is in column t if t < kept, else in
        kept + (t - kept) % ring.
    group_of_layer: index into `tables` of each layer. max_context: sys.maxsize for no limit. nbytes: of the reservation.
    storage: where beginnings outlive the process; None for nowhere, which it must be where there are layers with a state:
        their records are kept for this process alone.
    states: the records; None without such layers.
    Raises ResourceError if the machine lacks the memory, UnsupportedError for a head size that a format cannot keep; both
    before anything is allocated.
    """

    def __init__(
        self,
        layers: Sequence[CacheLayer],
        max_context: int | None,
        max_sequences: int = 1,
        prefill_chunk: int = 512,
        formats: Formats = DEFAULT_FORMATS,
        memory_bytes: int | None = None,
        root_key: bytes = ROOT_KEY,
        state_layers: Sequence[StateLayer] = (),
    ) -> None:
        for dims in dict.fromkeys(layer.dims for layer in layers):
            for name, head_dim in zip(formats, dims, strict=True):
                cache_formats.get(name).check(head_dim)
        reaches = list_reaches(layers, max_context, prefill_chunk)
        fixed_bytes = state_bytes(state_layers, max_sequences)
        blocks = memory.choose_blocks(layers, reaches, max_context, max_sequences, formats, memory_bytes, fixed_bytes)
        self.max_context = sys.maxsize if max_context is None else max_context
        self.max_sequences = max_sequences
        self.group_of_layer = layer_groups(layers)
        self.columns_of_group = tuple((reach.kept, reach.ring) for reach in reaches)
        self.storage: Storage | None = None
        self._arrays = CacheArrays(layers, blocks, formats)
        self.nbytes = self._arrays.nbytes + fixed_bytes
        self.states = StateCache(state_layers, max_sequences, root_key) if state_layers else None
        self.formats = formats
        self.block_bytes_of_group = self._arrays.block_bytes_of_group
        self._reaches = reaches
        self._full = next((group for group, reach in enumerate(reaches) if reach.window is None), None)
        self._groups = [
            CacheGroup(reach, BlockPool(count), max_sequences) for reach, count in zip(reaches, blocks, strict=True)
        ]
        self.tree = PrefixTree([group.pool for group in self._groups], self._full, root_key)
        for number, group in enumerate(self._groups):
            group.evict = partial(self.tree.evict, number)
            group.forget = partial(self.tree.forget, number)
            group.copy = partial(self._arrays.copy, number)
        self.tables = tuple(group.table for group in self._groups)
        self._slots = BlockPool(max_sequences)
        self._lengths = [0] * max_sequences
        self._limits = [0] * max_sequences  # positions below which `reserve` has nothing to do

    def open(self, token_ids: Sequence[int] = (), domain: bytes = b"") -> tuple[int, int]:
        """-> a free slot, and how many of the first token_ids it holds already: at most all but the last one.

        domain: what keys and values depend on beside the tokens; only what was kept with the same one is used.
        Raises ResourceError when all `max_sequences` slots are taken.
        """
        if self._slots.num_free == 0:
            raise ResourceError(f"all {self.max_sequences} cache slots are in use; raise max_sequences")
        tokens = pack_tokens(token_ids[:-1])
        found, record = self._cut_back(tokens, self._find(tokens, domain), domain)
        slot = self._slots.allocate()
        if self.states is not None:
            self.states.open(slot, found.num_tokens, record)
        for group, tile, node in found.sources:
            assert isinstance(node, Node)
            self._groups[group].share(slot, tile, node.blocks[group])
        self._lengths[slot] = found.num_tokens
        self._limits[slot] = 0
        return slot, found.num_tokens

    def fork(self, slot: int, num_tokens: int | None = None) -> int:
        """-> a free slot that holds what `slot` holds, without a copy until one of them writes.

        num_tokens: those that have been computed; None: all that have a place. Where there are layers with a state, both
        stand where the last record at or before it was written. Raises ResourceError when all `max_sequences` slots are taken.
        """
        self._check_open(slot)
        if self._slots.num_free == 0:
            raise ResourceError(f"all {self.max_sequences} cache slots are in use; raise max_sequences")
        length = self._lengths[slot] if num_tokens is None else num_tokens
        assert length <= self._lengths[slot], "these tokens are not in the cache"
        length = self._stand(slot, length)
        twin = self._slots.allocate()
        if self.states is not None:
            self.states.cut(slot, length)
            self.states.fork(slot, twin, length)
        for group in self._groups:
            for tile, block in group.tiles(slot):
                group.share(twin, tile, block)
        self._lengths[slot] = self._lengths[twin] = length
        self._limits[slot] = self._limits[twin] = 0
        return twin

    def keep(self, slot: int, token_ids: Sequence[int], domain: bytes = b"") -> None:
        """Put what a slot holds of token_ids, the tokens that have been computed in it, into the tree and the storage.

        The slot may go on: it shares its blocks with the tree now. Call it before `close`, or what it holds is lost.
        domain: as in `open`; only what depends on the tokens alone is stored.
        """
        self._check_open(slot)
        assert len(token_ids) <= self._lengths[slot], "these tokens are not in the cache"
        self._lengths[slot] = len(token_ids)
        self._limits[slot] = 0
        tokens, parent = pack_tokens(token_ids), self.tree.root_of(domain)
        if self.states is not None:
            self.states.keep(slot, tokens, parent.key, also_last=True)
        if not self._groups:
            return
        for tile, start in enumerate(range(0, len(tokens), NODE_BYTES)):
            parent = self._keep_tile(
                slot, tile, parent, tokens[start : start + NODE_BYTES], None if domain else self.storage
            )
        self.tree.prune(parent)

    def keep_states(self, slot: int, token_ids: Sequence[int], domain: bytes = b"") -> None:
        """Keep what `keep` would keep of states while a prompt is on its way in, or it is forgotten with the next step."""
        if self.states is not None and self.states.has_places(slot):
            self.states.keep(slot, pack_tokens(token_ids), self.tree.root_of(domain).key, also_last=False)

    def close(self, slot: int) -> None:
        """Free a slot; blocks that nobody else holds are free with it."""
        self._check_open(slot)
        self._cut(slot, 0)
        if self.states is not None:
            self.states.close(slot)
        self._slots.release(slot)

    @property
    def groups(self) -> tuple[CacheGroup, ...]:
        """The groups, in the order of `tables`."""
        return tuple(self._groups)

    @property
    def num_free_slots(self) -> int:
        """Sequences that could be opened now."""
        return self._slots.num_free

    @property
    def num_blocks(self) -> tuple[int, int, int]:
        """Blocks that slots hold, that only the tree holds, and that nobody holds, over all groups; from any thread."""
        pools = [group.pool for group in self._groups]
        free, idle = sum(pool.num_free for pool in pools), sum(len(pool.idle) for pool in pools)
        return sum(pool.num_blocks for pool in pools) - free - idle, idle, free

    def has_room(self, num_tokens: int) -> bool:
        """True if a new slot could come to hold num_tokens without taking anything from those that run."""
        tiles = num_tiles(num_tokens)
        return all(
            group.pool.num_free + len(group.pool.idle) >= min(tiles, group.reach.columns) for group in self._groups
        )

    def length(self, slot: int) -> int:
        """Positions of `slot` that have a place."""
        return self._lengths[slot]

    def reserve(self, slot: int, num_tokens: int) -> None:
        """Make every position below `num_tokens` that is in reach of the last have a place; never shrinks.

        The places from the present length on belong to this slot alone afterwards. A window group's oldest blocks are let
        go, so grow by at most prefill_chunk beyond what has been written. Raises ContextError beyond max_context, and
        ResourceError when other slots hold too many blocks: what the slot held before it still holds.
        """
        if num_tokens <= self._limits[slot]:
            self._lengths[slot] = max(self._lengths[slot], num_tokens)
            return
        self._check_open(slot)
        if num_tokens > self.max_context:
            raise ContextError(f"{num_tokens} tokens do not fit into max_context {self.max_context}; raise it")
        first, end = self._lengths[slot] // BLOCK_SIZE, num_tiles(num_tokens)
        for group in self._groups:
            group.reserve(slot, first, end)
        self._lengths[slot] = max(self._lengths[slot], num_tokens)
        self._limits[slot] = min(end * BLOCK_SIZE, self.max_context)

    def rewind(self, slot: int, num_tokens: int) -> int:
        """Forget the positions from `num_tokens` on, exactly. -> where the slot stands then.

        That is `num_tokens`, or less where there are layers with a state and none was written just there: the tokens between
        are to be computed again. Without such layers it raises ContextError, and changes nothing, if a window has moved on so
        far that what position `num_tokens` must see is gone: the caller then starts again from an empty slot (rewind to 0 is
        always possible).
        """
        self._check_open(slot)
        if not 0 <= num_tokens <= self._lengths[slot]:
            raise ContextError(f"cannot rewind to {num_tokens} tokens: the slot holds {self._lengths[slot]}")
        num_tokens = self._stand(slot, num_tokens)
        for group in self._groups:
            if not group.can_stand(slot, num_tokens):
                raise ContextError(
                    f"cannot rewind from {self._lengths[slot]} to {num_tokens} tokens: the window of "
                    f"{group.reach.window} has moved on; recompute from the start"
                )
        self._cut(slot, num_tokens)
        return num_tokens

    def address(self, layer: int) -> tuple[int, int]:
        """Addresses of a layer's K and V, each laid out [block][kv_head][tile bytes] and aligned to 64 bytes."""
        return self._arrays.address(layer)

    def read_block(self, group: int, block: int) -> bytes:
        """A block's bytes: K then V of the group's first layer, of its second, and so on."""
        return self._arrays.read(group, block)

    def write_block(self, group: int, block: int, data: bytes) -> None:
        """Put back what `read_block` gave, in this cache or in an equal one."""
        self._arrays.write(group, block, data)

    def free(self) -> None:
        """Give the memory back. Addresses are invalid from here on; harmless when repeated."""
        self._arrays.free()
        if self.states is not None:
            self.states.free()

    def _keep_tile(self, slot: int, tile: int, parent: Node, tokens: bytes, storage: Storage | None) -> Node:
        blocks = [group.block(slot, tile) for group in self._groups]
        node, taken = self.tree.insert(parent, tokens, blocks)
        if taken and storage is not None:
            # A node that goes on beyond these tokens is stored under its own: then these are, with all they have.
            groups = taken if node.tokens == tokens else [g for g, block in enumerate(blocks) if block != NO_BLOCK]
            data = {group: self.read_block(group, blocks[group]) for group in groups}
            storage.write(parent.key, unpack_tokens(tokens), data)
        if len(tokens) == NODE_BYTES:
            # A slot that computed what the tree had by then takes the tree's: the same bits need one block, and who uses
            # a node uses those above it, so that what nobody uses is leaves.
            for number, group in enumerate(self._groups):
                if blocks[number] not in (NO_BLOCK, node.blocks[number]) and node.held[number] == BLOCK_SIZE:
                    group.share(slot, tile, node.blocks[number])
        return node

    def _find(self, tokens: bytes, domain: bytes) -> Prefix:
        if domain:
            return find_prefix(self.tree, self._reaches, self._full, tokens, domain=domain)
        found = find_prefix(self.tree, self._reaches, self._full, tokens, self.storage)
        if any(not isinstance(source.node, Node) for source in found.sources):
            self._load(tokens, found.sources)
            found = find_prefix(self.tree, self._reaches, self._full, tokens)
        return found

    def _cut_back(self, tokens: bytes, found: Prefix, domain: bytes) -> tuple[Prefix, int]:
        """-> what of a beginning ends where a state is known, and its record; all of it without layers that have one."""
        if self.states is None:
            return found, 0
        root_key = self.tree.root_of(domain).key
        while found.num_tokens:
            length, record = self.states.snapshots.find(tokens[: found.num_tokens * TOKEN_BYTES], root_key)
            found = find_prefix(self.tree, self._reaches, self._full, tokens[: length * TOKEN_BYTES], domain=domain)
            if found.num_tokens == length:
                return found, record
        return Prefix(0, []), 0

    def _stand(self, slot: int, num_tokens: int) -> int:
        """The last place at or before num_tokens from which a slot can go on, as far as states are concerned."""
        if self.states is None:
            return num_tokens
        can_stand = [group.can_stand for group in self._groups]
        return self.states.stand(slot, num_tokens, lambda at: all(can(slot, at) for can in can_stand))

    def _load(self, tokens: bytes, sources: Sequence[Source]) -> None:
        """Bring stored nodes into the tree, in order, as far as there is room and nothing is damaged."""
        held = []  # what this needs must not be evicted for what it needs next
        stored: dict[int, list[tuple[Source, int]]] = {source.tile: [] for source in sources}
        try:
            for source in sorted(sources, key=lambda source: (not isinstance(source.node, Node), source.tile)):
                pool = self._groups[source.group].pool
                if isinstance(source.node, Node):
                    block = source.node.blocks[source.group]
                    pool.share(block)
                else:
                    block = self._groups[source.group].allocate()
                    stored[source.tile].append((source, block))
                held.append((source.tile, source.group, block))
        except ResourceError:
            pass  # no room for more: what there is, is used
        # From here on nothing is evicted, so the nodes of the path stay.
        parent, nothing = self.tree.root, [NO_BLOCK] * len(self._groups)
        for tile in range(max(stored) + 1):
            if not all(self._load_block(parent, source, block) for source, block in stored.get(tile, ())):
                break
            if tile < max(stored):
                chunk = tokens[tile * NODE_BYTES : (tile + 1) * NODE_BYTES]
                parent = self.tree.insert(parent, chunk, nothing)[0]
        for _, group, block in sorted(held, reverse=True):
            self._groups[group].pool.release(block)
        self.tree.prune(parent)

    def _load_block(self, parent: Node, source: Source, block: int) -> bool:
        """Fill a block from the storage and put it into the tree. -> False if the storage has lost it."""
        assert self.storage is not None and not isinstance(source.node, Node)
        data = self.storage.read(source.node, source.group)
        if data is None or len(data) != self.block_bytes_of_group[source.group]:
            return False
        self.write_block(source.group, block, data)
        blocks = [block if group == source.group else NO_BLOCK for group in range(len(self._groups))]
        self.tree.insert(parent, pack_tokens(source.node.token_ids), blocks)
        return True

    def _cut(self, slot: int, num_tokens: int) -> None:
        self._limits[slot] = 0
        for group in self._groups:
            group.cut(slot, num_tiles(num_tokens))
        if self.states is not None:
            self.states.cut(slot, num_tokens)
        self._lengths[slot] = num_tokens

    def _check_open(self, slot: int) -> None:
        assert self._slots.count(slot) == 1, f"cache slot {slot} is not open"
