"""A model without numbers for engine tests: its logits are a function of the ids found through the block tables.

It keeps one id per cache place in the cache's own memory, writes and reads through the tables exactly as attention does,
and checks every batch. A layer with a state keeps a number that all ids so far have made, in the records that a batch names.
A wrong table, position, ring, copy or record therefore changes the answer. `expected_logits` says the same without any cache.
"""

from __future__ import annotations

import ctypes
import hashlib
import itertools
import threading
from collections.abc import Sequence as ListOf

import numpy as np
from numpy.typing import NDArray

from edgellm.cache.kv import KVCache
from edgellm.cache.memory import needed_bytes
from edgellm.cache.states import state_bytes
from edgellm.config import EngineConfig
from edgellm.engine import Engine
from edgellm.kernels.cache_layout import BLOCK_SIZE
from edgellm.kernels.ops import NO_RECORD, Aborted, Batch, CacheLayer, StateLayer
from edgellm.speculative import Speculator

VOCAB_SIZE = 50
LAYER_DIM = 32
STATE = 0
"""In place of a window: a layer with a state."""


def logits_of(histories: ListOf[ListOf[int]], vocab_size: int = VOCAB_SIZE) -> NDArray[np.float32]:
    """f32[vocab_size] from the ids in reach, per cache group."""
    key = hashlib.blake2b(repr([[int(i) for i in ids] for ids in histories]).encode(), digest_size=8).digest()
    rng = np.random.Generator(np.random.PCG64(int.from_bytes(key, "little")))
    return rng.normal(0.0, 2.0, vocab_size).astype(np.float32)


def expected_logits(token_ids: ListOf[int], windows: ListOf[int | None]) -> NDArray[np.float32]:
    """What the model says after `token_ids`, computed without a cache."""
    return logits_of([_seen(token_ids, window) for window in windows])


def _seen(token_ids: ListOf[int], window: int | None) -> ListOf[int]:
    if window != STATE:
        return token_ids if window is None else token_ids[-window:]
    state = 0
    for token_id in token_ids:
        state = next_state(state, token_id)
    return [state]


def next_state(state: int, token_id: int) -> int:
    """What a layer with a state keeps after one more token."""
    return hash((state, int(token_id))) >> 2


class ScriptedBackend:
    """`run` as above; `script` (last id -> next id) makes the answer one that a test has written down."""

    def __init__(self, cache: KVCache, windows: ListOf[int | None], max_batch_tokens: int) -> None:
        self.vocab_size = VOCAB_SIZE
        self.windows = [window for window in windows if window != STATE]
        self.has_state = STATE in windows
        self.max_batch_tokens = max_batch_tokens
        self.batches: list[Batch] = []
        self.script: dict[int, int] = {}
        self.poison: set[int] = set()  # after one of these ids all logits are NaN
        self.is_closed = False
        self.gate: threading.Event | None = None
        self.in_gate = threading.Event()
        self.is_aborted = False
        self.num_aborted = 0
        self._cache = cache
        self._places = [self._view_places(group) for group in range(len(cache.tables))]

    def run(self, batch: Batch) -> NDArray[np.float32]:
        assert not self.is_closed
        if self.gate is not None:
            self.in_gate.set()
            for _ in range(20_000):
                if self.gate.wait(0.001) or self.is_aborted:
                    break
            else:
                raise AssertionError("nobody opened the gate")
        if self.is_aborted:
            self.is_aborted, self.num_aborted = False, self.num_aborted + 1
            raise Aborted
        self._check(batch)
        self.batches.append(batch)
        for token_id, position, row in zip(batch.token_ids, batch.positions, batch.sequences, strict=True):
            for group, places in enumerate(self._places):
                block = int(self._find_blocks(batch, group, row, np.array([position]))[0])
                assert block >= 0, f"position {position} has no block"
                assert self._cache._groups[group].pool.count(block) == 1, (
                    f"position {position} is written to others' block"
                )
                places[block, position % BLOCK_SIZE] = position, token_id
        states = self._run_states(batch) if self.has_state else []
        rows = [self._row(batch, int(i), states) for i in batch.logit_rows]
        return np.array(rows, np.float32).reshape(len(rows), self.vocab_size)

    def abort(self) -> None:
        self.is_aborted = True

    def close(self) -> None:
        self.is_closed = True

    def _view_places(self, group: int) -> NDArray[np.int64]:
        """i64[blocks, 64, 2] over the K of the group's first layer: position and id in each place, -1 where none is."""
        count, block_bytes = self._cache._groups[group].pool.num_blocks, self._cache.block_bytes_of_group[group]
        address, _ = self._cache.address(self._cache.group_of_layer.index(group))
        memory = np.ctypeslib.as_array((ctypes.c_uint8 * (count * block_bytes)).from_address(address)).view(np.int64)
        places = np.lib.stride_tricks.as_strided(memory, (count, BLOCK_SIZE, 2), (block_bytes, LAYER_DIM * 2, 8))
        places[:] = -1
        return places

    def _find_blocks(self, batch: Batch, group: int, row: int, positions: NDArray[np.int64]) -> NDArray[np.int32]:
        kept, ring = self._cache.columns_of_group[group]
        tiles = positions // BLOCK_SIZE
        return batch.block_tables[group][row, np.where(tiles < kept, tiles, kept + (tiles - kept) % ring)]

    def _run_states(self, batch: Batch) -> list[int]:
        """The state after every token. Written where the batch says so, at both ends of a record."""
        cache = self._cache.states
        assert cache is not None and len(batch.state_writes) == len(batch.token_ids)
        records = np.ctypeslib.as_array((ctypes.c_uint8 * cache.nbytes).from_address(cache.base)).view(np.int64)
        records = records.reshape(cache.num_records, -1)
        writes = batch.state_writes[batch.state_writes != NO_RECORD]
        reads = batch.state_reads[np.unique(batch.sequences)]
        assert len(set(writes)) == len(writes) and 0 not in writes and not set(writes) & set(reads)
        assert not records[0].any(), "the state of no tokens is zeros"
        found = list[int]()
        for i, (token_id, row) in enumerate(zip(batch.token_ids, batch.sequences, strict=True)):
            if i == 0 or row != batch.sequences[i - 1]:
                first = records[batch.state_reads[row]]
                state = int(first[0])
                assert first[-1] == state and (state == 0) == (batch.positions[i] == 0)
            state = next_state(state, token_id)
            if batch.state_writes[i] != NO_RECORD:
                records[batch.state_writes[i], [0, -1]] = state
            elif i + 1 == len(batch.token_ids) or row != batch.sequences[i + 1]:
                raise AssertionError("a sequence's last state is lost")
            found.append(state)
        return found

    def _row(self, batch: Batch, index: int, states: ListOf[int]) -> NDArray[np.float32]:
        last = int(batch.token_ids[index])
        if last in self.poison:
            return np.full(self.vocab_size, np.nan, np.float32)
        if last in self.script:
            row = np.zeros(self.vocab_size, np.float32)
            row[self.script[last]] = 50.0
            return row
        seen = [self._read(batch, index, group) for group in range(len(self.windows))]
        return logits_of([*seen, *([states[index]] for _ in range(self.has_state))])

    def _read(self, batch: Batch, index: int, group: int) -> list[int]:
        position, row, window = int(batch.positions[index]), batch.sequences[index], self.windows[group]
        positions = np.arange(0 if window is None else max(0, position - window + 1), position + 1)
        blocks = self._find_blocks(batch, group, row, positions)
        assert (blocks >= 0).all(), f"a position in reach of {position} has no block"
        found = self._places[group][blocks, positions % BLOCK_SIZE]
        assert (found[:, 0] == positions).all(), f"positions {found[:, 0]} stored where {positions} belong"
        return [int(i) for i in found[:, 1]]

    def _check(self, batch: Batch) -> None:
        count = len(batch.token_ids)
        assert 0 < count <= self.max_batch_tokens
        assert batch.token_ids.dtype == np.int32 and batch.positions.dtype == np.int64
        assert batch.sequences.dtype == np.int32 and batch.logit_rows.dtype == np.int32
        assert len(batch.positions) == count and len(batch.sequences) == count
        assert (np.diff(batch.logit_rows, prepend=-1) > 0).all() and (batch.logit_rows < count).all()
        starts = [0, *(np.flatnonzero(np.diff(batch.sequences)) + 1), count]
        owners = [int(batch.sequences[start]) for start in starts[:-1]]
        assert len(set(owners)) == len(owners), f"the tokens of a sequence are not adjacent: {batch.sequences}"
        for start, end in itertools.pairwise(starts):
            assert (np.diff(batch.positions[start:end]) == 1).all()


def make_engine(
    windows: ListOf[int | None] = (None,),
    max_context: int = 256,
    eog_ids: ListOf[int] = (),
    prefill_chunk: int = 16,
    max_sequences: int = 3,
    memory: float | None = None,
    speculator: Speculator | None = None,
) -> tuple[Engine, ScriptedBackend]:
    """An engine on a scripted backend, one cache layer per window, STATE as the last for one with a state.

    memory: in times what one sequence needs, beside states.
    """
    layers = [CacheLayer(1, LAYER_DIM, window) for window in windows if window != STATE]
    states = [StateLayer(5), StateLayer(32)] if STATE in windows else []
    one = needed_bytes(layers, max_context, 1, prefill_chunk)
    memory_bytes = None if memory is None else int(memory * one) + state_bytes(states, max_sequences)
    cache = KVCache(layers, max_context, max_sequences, prefill_chunk, memory_bytes=memory_bytes, state_layers=states)
    backend = ScriptedBackend(cache, windows, prefill_chunk + max_sequences)
    config = EngineConfig(prefill_chunk=prefill_chunk, max_sequences=max_sequences)
    return Engine(backend, cache, config, eog_ids, speculator=speculator), backend
