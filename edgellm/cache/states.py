"""Layers with a state: records of fixed size, which of them each slot has, and after how many of its tokens.

A state cannot be cut as keys and values can: one that has seen a token is of no use before it. So a step reads one record
and writes others, and a slot keeps those of a few places: going back is exact from there, the tokens behind such a place
are fed again. Records are never changed once written; slots and snapshots share them. Knows tokens' places, and tokens only
to name snapshots. Next hops: `snapshots.py`, `pool.py`; ops read through `base`, `record_bytes` and `offsets`.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from ..errors import ResourceError
from ..kernels.ops import NO_RECORD, StateLayer
from .memory import map_anonymous
from .pool import BlockPool
from .snapshots import Snapshots
from .tree import TOKEN_BYTES

SMALL_BYTES = 1 << 19
"""Records up to this size are written after every guessed token: that costs less than feeding the right ones again."""
MAX_SAVED_GUESSES = 24
PLACE_TOKENS = 256
"""Distance of the places in a prompt where others may go on differently."""
ANCHOR_TOKENS = 32
"""So far at least can ids be taken back without beginning at a snapshot."""
SNAPSHOT_BYTES = 64 << 20
MOST_SNAPSHOTS, LEAST_SNAPSHOTS = 32, 4
# What a slot holds: the latest states, and as many more as may have been of guesses; anchors; what a step writes beside guesses.
_RECENT, _ANCHORS, _STEP_POINTS = 2, 2, 5


def record_layout(layers: Sequence[StateLayer]) -> tuple[int, tuple[int, ...]]:
    """-> bytes of a record, and where each layer's numbers begin in it: at whole cache lines."""
    offsets, nbytes = [], 0
    for layer in layers:
        offsets.append(nbytes)
        nbytes += -(-layer.width * 4 // 64) * 64
    return nbytes, tuple(offsets)


def records_per_slot(record_bytes: int) -> int:
    """Records that one sequence comes to hold."""
    guesses = MAX_SAVED_GUESSES if record_bytes <= SMALL_BYTES else 0
    return _RECENT + guesses + _ANCHORS + _STEP_POINTS + guesses


def num_records(layers: Sequence[StateLayer], max_sequences: int) -> int:
    """Records of a cache: the one of no tokens, those of the sequences, and snapshots."""
    nbytes = record_layout(layers)[0]
    snapshots = min(MOST_SNAPSHOTS * max_sequences, SNAPSHOT_BYTES // max(nbytes, 1))
    return 1 + records_per_slot(nbytes) * max_sequences + max(LEAST_SNAPSHOTS, snapshots)


def state_bytes(layers: Sequence[StateLayer], max_sequences: int) -> int:
    """Bytes of all records of a cache; 0 without such layers. Memory that is never written is never taken."""
    return num_records(layers, max_sequences) * record_layout(layers)[0] if layers else 0


class StateCache:
    """The records of up to `max_sequences` slots.

    base: address of record 0, which is zeros; record r lies r * record_bytes further, a layer's numbers `offsets[layer]`
    into it, aligned to 64 bytes. reads: i32[max_sequences], a live view: the record that each slot's next step reads.
    saves_guesses: records are written after every guessed token, so that none is fed again.
    """

    def __init__(self, layers: Sequence[StateLayer], max_sequences: int, root_key: bytes) -> None:
        self.record_bytes, self.offsets = record_layout(layers)
        self.num_records = num_records(layers, max_sequences)
        self.nbytes = self.num_records * self.record_bytes
        self._memory: mmap.mmap | None = map_anonymous(self.nbytes)
        self.base = int(np.frombuffer(self._memory, np.uint8).__array_interface__["data"][0])
        self.reads: NDArray[np.int32] = np.zeros(max_sequences, np.int32)
        self.saves_guesses = self.record_bytes <= SMALL_BYTES
        self._num_recent = _RECENT + MAX_SAVED_GUESSES * self.saves_guesses
        self.pool = BlockPool(self.num_records)
        self.snapshots = Snapshots(self.pool, root_key)
        self._zeros = self.pool.allocate()
        assert self._zeros == 0, "record 0 is the state of no tokens"
        self._held: list[dict[int, int]] = [
            {} for _ in range(max_sequences)
        ]  # after so many tokens -> record; ascending
        self._places: list[set[int]] = [set() for _ in range(max_sequences)]  # of those, where others may go on

    def open(self, slot: int, num_tokens: int, record: int) -> None:
        """Begin a slot after `num_tokens` tokens whose state is in `record`."""
        assert not self._held[slot] and (record == 0) == (num_tokens == 0)
        self.pool.share(record)
        self._held[slot][num_tokens] = record

    def fork(self, slot: int, twin: int, num_tokens: int) -> None:
        """Let a new slot have what `slot` has of its first `num_tokens` tokens."""
        for place, record in self._held[slot].items():
            if place <= num_tokens:
                self.pool.share(record)
                self._held[twin][place] = record

    def plan(
        self, slot: int, start: int, num_tokens: int, num_guessed: int = 0, num_prompt: int = 0
    ) -> NDArray[np.int32]:
        """Choose the records of a step that computes `num_tokens` tokens from place `start` on, and guesses behind them.

        -> i32[num_tokens + num_guessed]: see Batch.state_writes. `start` is where the slot stands: what it had beyond, of a
        step that was interrupted or guessed wrong, is let go.
        """
        self.cut(slot, start)
        held = self._held[slot]
        assert start in held, f"the state after {start} tokens is not here, only after {list(held)}"
        self._thin(slot, start)
        self.reads[slot] = held[start]
        writes: NDArray[np.int32] = np.full(num_tokens + num_guessed, NO_RECORD, np.int32)
        if num_tokens == 1 and num_guessed == 0:  # most steps there are
            held[start + 1] = writes[0] = self._allocate()
            return writes
        for place in self._points(slot, start, start + num_tokens, num_guessed, num_prompt):
            held[place] = writes[place - start - 1] = self._allocate()
        return writes

    def stand(self, slot: int, num_tokens: int, is_possible: Callable[[int], bool]) -> int:
        """The last place at or before `num_tokens` whose state the slot has, and that is otherwise possible; 0 always is."""
        return next((at for at in sorted(self._held[slot], reverse=True) if at <= num_tokens and is_possible(at)), 0)

    def cut(self, slot: int, num_tokens: int) -> None:
        """Let go of the states beyond `num_tokens` tokens. At 0 there is always one."""
        held = self._held[slot]
        for place in [place for place in held if place > num_tokens]:
            self._drop(slot, place)
        if num_tokens == 0 and not held:
            self.open(slot, 0, 0)

    def keep(self, slot: int, tokens: bytes, root_key: bytes, also_last: bool) -> None:
        """Make snapshots of the places in packed `tokens` where others may go on, and of the last state in them."""
        held, length = self._held[slot], len(tokens) // TOKEN_BYTES
        places = {place for place in self._places[slot] if place <= length}
        if also_last:
            places |= {max((place for place in held if place <= length), default=0)}
        for place in sorted(places - {0}):
            self.snapshots.add(tokens[: place * TOKEN_BYTES], held[place], root_key)
        self._places[slot] -= places

    def has_places(self, slot: int) -> bool:
        """True if `keep` would find something that is not kept yet."""
        return bool(self._places[slot])

    def close(self, slot: int) -> None:
        """Let go of all that a slot has."""
        for place in list(self._held[slot]):
            self._drop(slot, place)

    def read(self, record: int) -> bytes:
        """A record's bytes."""
        return ctypes.string_at(self._place(record), self.record_bytes)

    def write(self, record: int, data: bytes) -> None:
        """Put back what `read` gave."""
        assert len(data) == self.record_bytes and record != 0
        ctypes.memmove(self._place(record), data, len(data))

    def free(self) -> None:
        """Give the memory back; harmless when repeated."""
        memory, self._memory = self._memory, None
        if memory is not None:
            memory.close()

    def _points(self, slot: int, start: int, end: int, num_guessed: int, num_prompt: int) -> list[int]:
        """After how many tokens a step writes its state."""
        last = end + num_guessed
        points = {end, last}
        if self.saves_guesses:
            points |= set(range(end, end + min(num_guessed, MAX_SAVED_GUESSES)))
        distance = PLACE_TOKENS if end <= num_prompt else ANCHOR_TOKENS
        places = set(range(last // distance * distance, start, -distance)[:2])
        if start < num_prompt - 1 < end:
            places.add(num_prompt - 1)  # the same prompt again: its last token is always computed
        if end <= num_prompt:
            self._places[slot] |= places
        return sorted(points | places)

    def _thin(self, slot: int, at: int) -> None:
        """Keep the latest, and those from which ids can be taken back a little further."""
        held = self._held[slot]
        if len(held) <= self._num_recent:
            return
        places = sorted(held)
        kept = set(places[-self._num_recent :])
        far = [place for place in places if place <= at - ANCHOR_TOKENS]
        kept.update(far[-1:], [p for p in places if p % ANCHOR_TOKENS == 0 and p > at - ANCHOR_TOKENS])
        for place in places:
            if place not in kept:
                self._drop(slot, place)

    def _drop(self, slot: int, place: int) -> None:
        self.pool.release(self._held[slot].pop(place))
        self._places[slot].discard(place)

    def _allocate(self) -> int:
        if self.pool.num_free == 0:
            self.snapshots.evict()
        return self.pool.allocate()

    def _place(self, record: int) -> int:
        if self._memory is None:
            raise ResourceError("this cache is closed")
        return self.base + record * self.record_bytes
