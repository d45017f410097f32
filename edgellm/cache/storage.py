"""What the cache asks of a place where beginnings outlive the process: the contract between `kv.py` and `disk.py`.

A stored node is what a node of `tree.py` is: up to 64 tokens after those of its parent, with the bytes of a block for each
group that had one. Parents are named by their key, which is the same in every process.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol


class StoredNode(Protocol):
    """token_ids: 1 to 64. groups: those whose bytes `read` may give, of all its tokens."""

    @property
    def token_ids(self) -> Sequence[int]: ...

    @property
    def groups(self) -> Collection[int]: ...


class Storage(Protocol):
    """find: the child of `parent_key` that has the most first tokens in common with token_ids (1 to 64), None if none has.
    read: the bytes of one group, None if they are lost or damaged. write: add or replace groups of a node; called for what
    is new in the tree, parents first; -> False if there is no room for them now. Nothing here may raise for what is on the disk.
    """

    def find(self, parent_key: bytes, token_ids: Sequence[int]) -> StoredNode | None: ...

    def read(self, node: StoredNode, group: int) -> bytes | None: ...

    def write(self, parent_key: bytes, token_ids: Sequence[int], groups: Mapping[int, bytes]) -> bool: ...
