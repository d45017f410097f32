"""The bytes of one kept block: who it belongs to, which tokens, and its keys and values, each under a checksum.

A record is what a file of the disk cache holds, and a part of a state file. Every length is checked before it is used, and
whatever is wrong makes a record worth nothing, never an error. Knows no folder and no tree. Next hops: `folder.py`, `state.py`.

CRC-32 is the checksum: it finds every error of up to 32 bits in a row and 2^32 - 1 of 2^32 others, which is what disks and
cut writes do, and it is the fastest of the standard library (measured: CRC-32 3.7 GB/s, SHA-256 1.6 with its own instructions
and 0.4 without, BLAKE2b 0.5). Nothing here keeps out a person who can write to the folder: nor could a longer sum.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from ..kernels.cache_layout import BLOCK_SIZE
from .tree import KEY_BYTES, make_key, pack_tokens, unpack_tokens

_MAGIC = b"edgeKV1\n"
_PREFIX = struct.Struct(
    f"<8s{KEY_BYTES}s{KEY_BYTES}sIIQI"
)  # magic, identity, parent, group, tokens, payload's bytes, its sum
_SUM = struct.Struct("<I")
MAX_HEAD_BYTES = _PREFIX.size + 4 * BLOCK_SIZE + _SUM.size


@dataclass(frozen=True, slots=True)
class Head:
    """What a record says of its payload.

    identity: what model and settings the keys and values are of. parent: key of the tokens before. token_ids: 1 to BLOCK_SIZE
    ids. group: index of the cache group. payload_bytes, payload_sum: length and CRC-32 of what follows.
    nbytes: of the head itself.
    """

    identity: bytes
    parent: bytes
    token_ids: tuple[int, ...]
    group: int
    payload_bytes: int
    payload_sum: int

    @property
    def key(self) -> bytes:
        """Key of the node that the record belongs to."""
        return node_key(self.parent, self.token_ids)

    @property
    def nbytes(self) -> int:
        """Bytes before the payload."""
        return _PREFIX.size + 4 * len(self.token_ids) + _SUM.size


def node_key(parent: bytes, token_ids: Sequence[int]) -> bytes:
    """Return the key of the node that holds `token_ids` after those that `parent` stands for."""
    return make_key(parent, pack_tokens(token_ids))


def make_head(identity: bytes, parent: bytes, token_ids: Sequence[int], group: int, payload: bytes) -> bytes:
    """Return the bytes that go before a payload."""
    assert len(identity) == len(parent) == KEY_BYTES and 1 <= len(token_ids) <= BLOCK_SIZE
    prefix = _PREFIX.pack(_MAGIC, identity, parent, group, len(token_ids), len(payload), zlib.crc32(payload))
    head = prefix + pack_tokens(token_ids)
    return head + _SUM.pack(zlib.crc32(head))


def parse_head(data: bytes) -> Head | None:
    """Read the head at the start of `data` (MAX_HEAD_BYTES are always enough); None if it is not a sound one."""
    if len(data) < _PREFIX.size or not data.startswith(_MAGIC):
        return None
    _, identity, parent, group, count, payload_bytes, payload_sum = _PREFIX.unpack_from(data)
    end = _PREFIX.size + 4 * count
    if not 1 <= count <= BLOCK_SIZE or len(data) < end + _SUM.size:
        return None
    if _SUM.unpack_from(data, end)[0] != zlib.crc32(data[:end]):
        return None
    token_ids = unpack_tokens(data[_PREFIX.size : end])
    return Head(identity, parent, token_ids, group, payload_bytes, payload_sum)


def is_whole(head: Head, payload: bytes) -> bool:
    """True if the payload is what was written after this head."""
    return len(payload) == head.payload_bytes and zlib.crc32(payload) == head.payload_sum
