"""A saved state: one file with all prefixes that a cache holds, for applications that keep conversations.

Layout: magic, u32 bytes of the identity's JSON, the JSON, CRC-32 of all that; records as in `record.py`, a node's groups one
after the other, parents before children; an end mark with the number of records. The identity is spelled out, so that a
refusal can say what differs. A file that is damaged anywhere is refused as a whole, before anything of it is used: half a
conversation that looks like a whole one helps nobody. Knows no tree and no array. Next hop: `llm.py`.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from ..errors import ResourceError, StateError
from .identity import differing, digest
from .record import MAX_HEAD_BYTES, Head, is_whole, make_head, parse_head

_MAGIC = b"edgellm state 1\n"
_END = b"edgeEND1"
_LENGTH = struct.Struct("<I")
_TRAILER = struct.Struct("<8sQI")
_MOST_JSON_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class StateNode:
    """A node of a prefix tree with its blocks, as bytes, by cache group."""

    parent: bytes
    token_ids: tuple[int, ...]
    blocks: Mapping[int, bytes]


# ---- writing ----
def write_state(path: Path, parts: Mapping[str, str], nodes: Iterable[StateNode]) -> int:
    """Write a state; another file of this name is replaced once the new one is whole and on the disk. -> its bytes.

    parts: the identity. nodes: parents before children. Raises ResourceError where the folder or the disk has no room for it.
    """
    part = path.with_name(f".{path.name}.{os.urandom(4).hex()}.part")
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
        with os.fdopen(os.open(part, flags, 0o600), "wb") as file:
            _write(file, parts, nodes)
            nbytes = file.tell()
            file.flush()
            os.fsync(file.fileno())  # a rename may reach the disk before what it names
        os.replace(part, path)
    except OSError as error:
        raise ResourceError(
            f"the state cannot be written to {path} ({error.strerror or error}); free some space or choose another place"
        ) from None
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
    return nbytes


def _write(file: BinaryIO, parts: Mapping[str, str], nodes: Iterable[StateNode]) -> None:
    identity, text = digest(parts), json.dumps(dict(parts)).encode()
    head = _MAGIC + _LENGTH.pack(len(text)) + text
    file.write(head + _LENGTH.pack(zlib.crc32(head)))
    count = 0
    for node in nodes:
        for group, payload in node.blocks.items():
            file.write(make_head(identity, node.parent, node.token_ids, group, payload))
            file.write(payload)
            count += 1
    file.write(_TRAILER.pack(_END, count, _sum_of_end(identity, count)))


def _sum_of_end(identity: bytes, count: int) -> int:
    return zlib.crc32(identity + _END + count.to_bytes(8, "little"))


# ---- reading ----
def read_state(path: Path, parts: Mapping[str, str], block_bytes: Sequence[int]) -> Iterator[StateNode]:
    """Yield the nodes of a state in the order in which they were written, parents before children.

    parts: our identity. block_bytes: per cache group, what a block measures. Raises StateError, before anything is yielded, where
    the file is missing, damaged, or of another model or other settings.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # asked before opening: opening a pipe would wait for its writer
            raise StateError(f"{path} is not a file; give the path that a state was saved to")
        with path.open("rb") as file:
            theirs = _read_parts(file, path)
            if theirs != dict(parts):
                raise StateError(
                    f"the state {path} was saved with other settings: {', '.join(differing(parts, theirs))}; "
                    "load the model as it was then, or start without it"
                )
            start = file.tell()
            for _ in _read_records(file, path, digest(parts), block_bytes):
                pass
            file.seek(start)
            yield from _join(_read_records(file, path, digest(parts), block_bytes))
    except OSError as error:
        raise StateError(f"the state {path} cannot be read ({error.strerror or error}); check its path") from None


def _read_parts(file: BinaryIO, path: Path) -> dict[str, str]:
    prefix = file.read(len(_MAGIC) + _LENGTH.size)
    if not prefix.startswith(_MAGIC):
        raise StateError(f"{path} is not a state that this version of edgellm saved; it starts with {prefix[:16]!r}")
    nbytes = _LENGTH.unpack_from(prefix, len(_MAGIC))[0] if len(prefix) == len(_MAGIC) + _LENGTH.size else 0
    text = file.read(min(nbytes, _MOST_JSON_BYTES))
    if file.read(_LENGTH.size) != _LENGTH.pack(zlib.crc32(prefix + text)):
        raise _damaged(path, "its beginning does not fit its checksum")
    try:
        parts = json.loads(text)
    except (ValueError, RecursionError):
        parts = None
    if not isinstance(parts, dict) or not all(type(value) is str for value in parts.values()):
        raise _damaged(path, "its beginning makes no sense")
    return parts


def _read_records(
    file: BinaryIO, path: Path, identity: bytes, block_bytes: Sequence[int]
) -> Iterator[tuple[Head, bytes]]:
    count = 0
    while True:
        at = file.tell()
        data = file.read(MAX_HEAD_BYTES)
        if data.startswith(_END):
            if data != _TRAILER.pack(_END, count, _sum_of_end(identity, count)):
                raise _damaged(path, f"its end at byte {at} is not that of {count} records")
            return
        head = parse_head(data)
        if head is None or head.identity != identity:
            raise _damaged(path, f"record {count} at byte {at} is cut off or damaged")
        if head.group >= len(block_bytes) or head.payload_bytes != block_bytes[head.group]:
            raise _damaged(path, f"record {count} at byte {at} has a wrong size")
        file.seek(at + head.nbytes)
        payload = file.read(head.payload_bytes)
        if not is_whole(head, payload):
            raise _damaged(path, f"record {count} at byte {at} does not fit its checksum")
        yield head, payload
        count += 1


def _join(records: Iterator[tuple[Head, bytes]]) -> Iterator[StateNode]:
    """Put the groups of a node together again."""
    node: StateNode | None = None
    for head, payload in records:
        if node is not None and (node.parent, node.token_ids) == (head.parent, head.token_ids):
            node = StateNode(node.parent, node.token_ids, {**node.blocks, head.group: payload})
            continue
        if node is not None:
            yield node
        node = StateNode(head.parent, head.token_ids, {head.group: payload})
    if node is not None:
        yield node


def _damaged(path: Path, how: str) -> StateError:
    return StateError(f"the state {path} is damaged: {how}; nothing of it was loaded")
