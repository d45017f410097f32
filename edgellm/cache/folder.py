"""The records of one model and its settings: a folder with a file per node and group, and an index of their names.

A file's name says parent, node, number of tokens and group, so one listing of the folder finds the children of any node; a
group has a file of its own because a window layer's block may be missing, come later, or not be wanted. Other processes may
add and delete files at any time: what vanished is not there, what came is seen at the next listing. Whatever is damaged or
does not belong here is deleted. Knows no limit and no thread. Next hops: `record.py` for the bytes, `disk.py` above.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from ..kernels.cache_layout import BLOCK_SIZE
from .record import MAX_HEAD_BYTES, Head, is_whole, make_head, node_key, parse_head

PART_PREFIX = ".part-"
_NAME = re.compile(r"([0-9a-f]{32})-([0-9a-f]{32})-(\d{1,2})-(\d{1,3})\.kv")
_RELIST_S = 5.0  # at most so often: a listing of thousands of files takes milliseconds
_TOUCH_S = 60.0  # a use is noted at most so often


@dataclass(frozen=True, slots=True)
class FoundNode:
    """A node of which something is on disk. groups: the cache groups whose block can be read."""

    parent: bytes
    key: bytes
    token_ids: tuple[int, ...]
    groups: frozenset[int]


@dataclass(slots=True)
class _Node:
    """What the names say. token_ids: what the heads say, None until one was read."""

    count: int
    groups: set[int] = field(default_factory=set)
    token_ids: tuple[int, ...] | None = None


def parse_name(name: str) -> tuple[bytes, bytes, int, int] | None:
    """-> parent, key, number of tokens and group of a record's file name; None for other files."""
    match = _NAME.fullmatch(name)
    return match and (bytes.fromhex(match[1]), bytes.fromhex(match[2]), int(match[3]), int(match[4]))


def make_private(folder: Path) -> None:
    """Make a folder that only its owner may enter: prompts can be read out of what it holds."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)


class RecordFolder:
    """One identity's records. Thread-safe; files are listed at the first use.

    path: the folder, which may not exist yet. block_bytes: per group, what its payloads must measure.
    """

    def __init__(self, path: Path, identity: bytes, block_bytes: Sequence[int]) -> None:
        self.path = path
        self._identity = identity
        self._block_bytes = tuple(block_bytes)
        self._children: dict[bytes, dict[bytes, _Node]] = {}
        self._keys: set[bytes] = set()
        self._part = path / f"{PART_PREFIX}{os.urandom(8).hex()}"
        self._lock = threading.RLock()
        self._listed_s = -_RELIST_S
        self._listed_ns = -1

    def find(self, parent: bytes, token_ids: Sequence[int]) -> FoundNode | None:
        """Return the child of `parent` that begins with the most of `token_ids`; None if none shares the first."""
        with self._lock:
            self._list()
            children = self._children.get(parent, {})
            whole = tuple(token_ids[:BLOCK_SIZE])
            key = node_key(parent, whole) if whole else b""
            best, length = None, 0
            for child in [key] if key in children and self._tokens(parent, key) == whole else list(children):
                found = self._tokens(parent, child)
                shared = 0 if found is None else _num_shared(found, whole)
                if shared > length:
                    best, length = child, shared
            if best is None:
                return None
            node = children[best]
            assert node.token_ids is not None
            return FoundNode(parent, best, node.token_ids, frozenset(node.groups))

    def has_longer(self, parent: bytes, token_ids: Sequence[int], group: int) -> bool:
        """True if there is a block that begins with these tokens and goes on."""
        with self._lock:
            self._list()
            wanted = tuple(token_ids)
            for key, node in list(self._children.get(parent, {}).items()):
                if group in node.groups and node.count > len(wanted):
                    found = self._tokens(parent, key)
                    if found is not None and found[: len(wanted)] == wanted:
                        return True
            return False

    def has(self, key: bytes) -> bool:
        """True if anything of the node `key` is there."""
        with self._lock:
            self._list()
            return key in self._keys

    def read(self, stored: FoundNode, group: int) -> bytes | None:
        """Return a block as it was written, or None if it is not, or no longer, there."""
        name = _name(stored.parent, stored.key, len(stored.token_ids), group)
        try:
            with open(self.path / name, "rb", buffering=0) as file:
                head = self._read_head(file)
                if head is not None and (head.parent, head.token_ids) == (stored.parent, stored.token_ids):
                    file.seek(head.nbytes)
                    payload = file.read(head.payload_bytes)
                    if head.group == group and is_whole(head, payload):
                        self._touch(name, file)
                        return payload
        except FileNotFoundError:
            self._forget(stored.parent, stored.key, group)
            return None
        except OSError:  # not readable now; it may be sound
            return None
        self._delete(stored.parent, stored.key, len(stored.token_ids), group)
        return None

    def write(self, parent: bytes, token_ids: Sequence[int], group: int, payload: bytes) -> int:
        """Keep a block; blocks whose tokens are its first ones go. -> bytes written. Raises OSError. For one thread at a time."""
        key = node_key(parent, token_ids)
        head = make_head(self._identity, parent, token_ids, group, payload)
        make_private(self.path)
        try:
            # No fsync: a killed process loses nothing that was written, and what a power cut tears, the checksum finds.
            descriptor = os.open(self._part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_BINARY", 0), 0o600)
            with open(descriptor, "wb", buffering=0) as file:
                _write_all(file, head)
                _write_all(file, payload)
            os.replace(self._part, self.path / _name(parent, key, len(token_ids), group))
        except BaseException:
            with contextlib.suppress(OSError):
                self._part.unlink()
            raise
        with self._lock:
            node = self._children.setdefault(parent, {}).setdefault(key, _Node(len(token_ids)))
            node.groups.add(group)
            node.token_ids = tuple(token_ids)
            self._keys.add(key)
            self._delete_shorter(parent, tuple(token_ids), group)
        return len(head) + len(payload)

    def _list(self) -> None:
        """Look at the folder again if it has changed since."""
        now = time.monotonic()
        if now - self._listed_s < _RELIST_S:
            return
        try:
            changed_ns = self.path.stat().st_mtime_ns
            if changed_ns == self._listed_ns:
                return
            with os.scandir(self.path) as entries:
                names = [entry.name for entry in entries if entry.is_file(follow_symlinks=False)]
        except OSError:  # not there yet, or not ours to read
            changed_ns, names = -1, []
        known, self._children = self._children, {}
        for parent, key, count, group in filter(None, map(parse_name, names)):
            if group < len(self._block_bytes) and 1 <= count <= BLOCK_SIZE:
                node = self._children.setdefault(parent, {}).setdefault(key, _Node(count))
                node.groups.add(group)
                before = known.get(parent, {}).get(key)
                node.token_ids = None if before is None else before.token_ids
        self._keys = {key for children in self._children.values() for key in children}
        self._listed_s, self._listed_ns = now, changed_ns

    def _tokens(self, parent: bytes, key: bytes) -> tuple[int, ...] | None:
        """The tokens of a node in the index, read from its file the first time; None if it is gone or worth nothing."""
        node = self._children.get(parent, {}).get(key)
        while node is not None and node.token_ids is None and node.groups:
            group = min(node.groups)
            try:
                with open(self.path / _name(parent, key, node.count, group), "rb", buffering=0) as file:
                    head = self._read_head(file)
            except OSError:
                self._forget(parent, key, group)
                continue
            if head is None or (head.parent, head.key, head.group) != (parent, key, group):
                self._delete(parent, key, node.count, group)
            elif len(head.token_ids) == node.count:
                node.token_ids = head.token_ids
            else:
                self._delete(parent, key, node.count, group)
        return node.token_ids if node is not None else None

    def _read_head(self, file: BinaryIO) -> Head | None:
        """Read a head and check all of it that can be checked without the payload."""
        head = parse_head(file.read(MAX_HEAD_BYTES))
        if head is None or head.identity != self._identity or head.group >= len(self._block_bytes):
            return None
        if head.payload_bytes != self._block_bytes[head.group]:
            return None
        return head if os.fstat(file.fileno()).st_size == head.nbytes + head.payload_bytes else None

    def _touch(self, name: str, file: BinaryIO) -> None:
        if abs(time.time() - os.fstat(file.fileno()).st_mtime) > _TOUCH_S:
            with contextlib.suppress(OSError):
                os.utime(self.path / name)

    def _delete_shorter(self, parent: bytes, token_ids: tuple[int, ...], group: int) -> None:
        """Delete blocks that the block of `token_ids` begins with: whoever looks for them finds the longer one."""
        for key, node in list(self._children.get(parent, {}).items()):
            if node.count < len(token_ids) and group in node.groups:
                found = self._tokens(parent, key)
                if found is not None and found == token_ids[: len(found)]:
                    self._delete(parent, key, node.count, group)

    def _delete(self, parent: bytes, key: bytes, count: int, group: int) -> None:
        with contextlib.suppress(OSError):
            (self.path / _name(parent, key, count, group)).unlink()
        self._forget(parent, key, group)

    def _forget(self, parent: bytes, key: bytes, group: int) -> None:
        with self._lock:
            node = self._children.get(parent, {}).get(key)
            if node is not None:
                node.groups.discard(group)
                if not node.groups:
                    del self._children[parent][key]
                    self._keys.discard(key)


def _name(parent: bytes, key: bytes, count: int, group: int) -> str:
    return f"{parent.hex()}-{key.hex()}-{count}-{group}.kv"


def _write_all(file: BinaryIO, data: bytes) -> None:
    view = memoryview(data)
    while view:  # a raw file may take less than it is given
        view = view[file.write(view) :]


def _num_shared(a: Sequence[int], b: Sequence[int]) -> int:
    for i, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return i
    return min(len(a), len(b))
