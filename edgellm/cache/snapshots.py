"""Which states lie ready for sequences that begin alike: records by the tokens that they come after.

A state is of use only for a beginning of just its length, so unlike blocks it is found whole or not at all. Knows ids of
records and tokens, no arrays. Next hops: `states.py` adds and takes them, `pool.py` counts holders.
"""

from __future__ import annotations

from collections.abc import Iterator

from .pool import BlockPool
from .tree import NODE_BYTES, TOKEN_BYTES, make_key


class Snapshots:
    """Records that stay for later, for as long as there is room: this is one holder of each in `pool`."""

    def __init__(self, pool: BlockPool, root_key: bytes) -> None:
        self._pool = pool
        self._root_key = root_key
        self._records: dict[
            bytes, dict[bytes, int]
        ] = {}  # by the key of the whole tiles before, and the tokens after them
        self._names: dict[int, tuple[bytes, bytes]] = {}

    def __len__(self) -> int:
        return len(self._names)

    def __iter__(self) -> Iterator[tuple[bytes, bytes, int]]:
        """(key of the whole tiles before, tokens after them, record), the least recently added first."""
        for record, (key, tokens) in list(self._names.items()):
            yield key, tokens, record

    def add(self, tokens: bytes, record: int) -> None:
        """Keep the state after packed `tokens`, one or more; the one that is there already stays."""
        key = self._root_key
        last = (len(tokens) - TOKEN_BYTES) // NODE_BYTES * NODE_BYTES
        for start in range(0, last, NODE_BYTES):
            key = make_key(key, tokens[start : start + NODE_BYTES])
        self.put(key, tokens[last:], record)

    def put(self, key: bytes, tokens: bytes, record: int) -> None:
        """Keep the state after 1 to 64 `tokens` that follow the whole tiles of `key`; the one that is there already stays."""
        if tokens not in self._records.get(key, {}) and record not in self._names:
            self._pool.keep(record)
            self._records.setdefault(key, {})[tokens] = record
            self._names[record] = key, tokens

    def find(self, tokens: bytes) -> tuple[int, int]:
        """-> how many of the first tokens have their state here, at most, and its record; 0, 0 for none."""
        keys = [self._root_key]
        for start in range(0, len(tokens) - NODE_BYTES + 1, NODE_BYTES):
            keys.append(make_key(keys[-1], tokens[start : start + NODE_BYTES]))
        for tile in range(len(keys) - 1, -1, -1):
            start = tile * NODE_BYTES
            known = self._records.get(keys[tile], {})
            fitting = [some for some in known if tokens.startswith(some, start)]
            if fitting:
                longest = max(fitting, key=len)
                return (start + len(longest)) // TOKEN_BYTES, known[longest]
        return 0, 0

    def evict(self) -> bool:
        """Let go of the one that has been of no use for the longest. -> False if every one is in use."""
        for record in self._pool.idle:
            self._forget(record)
            return True
        return False

    def clear(self) -> None:
        """Let go of all."""
        for record in list(self._names):
            self._forget(record)

    def _forget(self, record: int) -> None:
        key, tokens = self._names.pop(record)
        del self._records[key][tokens]
        if not self._records[key]:
            del self._records[key]
        self._pool.forget(record)
