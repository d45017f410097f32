"""Read the head of one GGUF file: bytes -> metadata and tensor table. Every count and length is checked against the
bytes left before anything is allocated or looped over, so a hostile file costs no more than its own size.

Does not know where the bytes come from, nor what keys and tensors mean. The next hop is `gguf.py`, which maps files.
Source: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, overload

import numpy as np

from .errors import ModelFileError, UnsupportedError
from .gguf_types import GGML_TYPES, describe_unknown_type

Buffer = bytes | mmap.mmap

# Far above any real model, far below what could hurt.
MAX_KEYS = 1 << 16
MAX_TENSORS = 1 << 17
MAX_NAME_BYTES = 1 << 12
MAX_STRING_BYTES = 1 << 26
MAX_ARRAY_ITEMS = 1 << 26
MAX_DIMS = 4
MAX_ALIGNMENT = 1 << 20
DEFAULT_ALIGNMENT = 32

# The least an entry can take: a key's length, its type, one byte; a tensor name's length, dims, one dim, type, offset.
MIN_KEY_BYTES = 13
MIN_TENSOR_BYTES = 32

BOOL, STRING, ARRAY = 7, 8, 9
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", BOOL: "?", 10: "Q", 11: "q", 12: "d"}
SCALARS = {kind: struct.Struct("<" + code) for kind, code in _SCALARS.items()}
U32, U64 = SCALARS[4], SCALARS[10]
# What stepping through a damaged string array can raise: an offset past the end, or past what an index can hold.
_OFF_THE_END = (struct.error, OverflowError, IndexError)


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor of a file. `shape` is outermost first: weights are (N, K). `offset` counts bytes in file `part`."""

    name: str
    type_id: int
    type_name: str
    shape: tuple[int, ...]
    nbytes: int
    offset: int
    part: int = 0


@dataclass(frozen=True, slots=True)
class Header:
    """What one file declares."""

    version: int
    metadata: dict[str, Any]
    tensors: dict[str, TensorInfo]


def quote(text: bytes | str) -> str:
    """Show a file's own text in a message: one line, printable, not long."""
    if isinstance(text, bytes):
        return ascii(text[:64])
    return ascii(text if len(text) <= 64 else text[:61] + "...")


class StringArray(Sequence[str]):
    """An array of strings, left in the file until asked for. The bytes stay valid only while the file is open."""

    def __init__(self, buffer: Buffer, start: int, end: int, count: int, where: str) -> None:
        self._buffer, self._start, self._end, self._count, self._where = buffer, start, end, count, where
        self._offsets: list[int] | None = None

    def __len__(self) -> int:
        return self._count

    def _load_offsets(self) -> list[int]:
        if self._offsets is None:
            unpack, buffer, at = U64.unpack_from, self._buffer, self._start
            offsets = []
            for _ in range(self._count):
                offsets.append(at)
                at += 8 + unpack(buffer, at)[0]
            self._offsets = offsets
        return self._offsets

    def raw(self, index: int) -> bytes:
        """Return string `index` as its bytes. Raises IndexError out of range."""
        at = self._load_offsets()[index]
        return self._buffer[at + 8 : at + 8 + U64.unpack_from(self._buffer, at)[0]]

    def view(self) -> memoryview:
        """Return the array as it lies in the file: each string's length (u64), then its bytes."""
        return memoryview(self._buffer)[self._start : self._end]

    def raw_list(self) -> list[bytes]:
        """Return all strings as bytes, in one pass."""
        unpack, buffer, at = U64.unpack_from, self._buffer, self._start
        strings = []
        for _ in range(self._count):
            start = at + 8
            at = start + unpack(buffer, at)[0]
            strings.append(buffer[start:at])
        return strings

    def _decode(self, index: int, raw: bytes) -> str:
        try:
            return raw.decode()
        except UnicodeDecodeError:
            raise ModelFileError(f"{self._where}: string {index} is not UTF-8: {quote(raw)}") from None

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(self._count))]
        return self._decode(index, self.raw(index))

    def __iter__(self) -> Iterator[str]:
        return (self._decode(i, raw) for i, raw in enumerate(self.raw_list()))

    def __repr__(self) -> str:
        return f"StringArray({self._count} strings)"


class _Cursor:
    """A place in a file. Takes values off it, and refuses to step past the end."""

    def __init__(self, buffer: Buffer, at: int, path: str) -> None:
        self.buffer, self.at, self.size, self.path = buffer, at, len(buffer), path

    def fail(self, detail: str) -> NoReturn:
        raise ModelFileError(f"{self.path} is truncated or damaged: {detail}; download it again")

    @property
    def left(self) -> int:
        return self.size - self.at

    def skip(self, nbytes: int, what: str) -> int:
        """Step over `nbytes` and return where they start."""
        if nbytes > self.left:
            self.fail(f"{what} needs {nbytes} bytes at byte {self.at}, the file has {self.left} more")
        start = self.at
        self.at += nbytes
        return start

    def scalar(self, form: struct.Struct, what: str) -> Any:
        return form.unpack_from(self.buffer, self.skip(form.size, what))[0]

    def count(self, limit: int, least_bytes: int, what: str) -> int:
        """Take a count of items that take at least `least_bytes` each."""
        number: int = self.scalar(U64, f"the number of {what}")
        if number > self.left // least_bytes:
            self.fail(f"{number} {what} cannot fit into the {self.left} bytes left")
        if number > limit:
            self.fail(f"{number} {what} are more than the limit of {limit}")
        return number

    def string(self, limit: int, what: str) -> bytes:
        length: int = self.scalar(U64, f"the length of {what}")
        if length > self.left:
            self.fail(f"{what} is declared {length} bytes long, the file has {self.left} more")
        if length > limit:
            self.fail(f"{what} is {length} bytes long, the limit is {limit}")
        start = self.skip(length, what)
        return self.buffer[start : start + length]

    def text(self, limit: int, what: str) -> str:
        raw = self.string(limit, what)
        try:
            return raw.decode()
        except UnicodeDecodeError:
            self.fail(f"{what} is not UTF-8: {quote(raw)}")


def _take_strings(cursor: _Cursor, key: str) -> StringArray:
    count = cursor.count(MAX_ARRAY_ITEMS, 8, f"strings in {key}")
    start = at = cursor.at
    unpack, buffer = U64.unpack_from, cursor.buffer
    try:
        for _ in range(count):
            at += 8 + unpack(buffer, at)[0]
    except _OFF_THE_END:
        at = cursor.size + 1
    if at > cursor.size:
        cursor.fail(f"a string in {key} reaches past the end of the file")
    cursor.at = at
    return StringArray(buffer, start, at, count, f"{cursor.path}: {key}")


def _take_array(cursor: _Cursor, key: str) -> Any:
    kind = cursor.scalar(U32, f"the item type of {key}")
    if kind == STRING:
        return _take_strings(cursor, key)
    if kind == ARRAY:
        cursor.fail(f"{key} is an array of arrays, which GGUF models do not use")
    if kind not in SCALARS:
        cursor.fail(f"{key} has the unknown item type {kind}")
    dtype = np.dtype("<" + _SCALARS[kind])
    count = cursor.count(MAX_ARRAY_ITEMS, dtype.itemsize, f"items in {key}")
    start = cursor.skip(count * dtype.itemsize, key)
    if kind == BOOL:
        return np.frombuffer(cursor.buffer, np.uint8, count, start) != 0
    # A copy: aligned, and it does not hold the file's map open.
    return np.frombuffer(cursor.buffer, dtype, count, start).copy()


def _take_value(cursor: _Cursor, key: str) -> Any:
    kind = cursor.scalar(U32, f"the type of {key}")
    if kind == STRING:
        return cursor.text(MAX_STRING_BYTES, f"the value of {key}")
    if kind == ARRAY:
        return _take_array(cursor, key)
    if kind not in SCALARS:
        cursor.fail(f"{key} has the unknown value type {kind}")
    return cursor.scalar(SCALARS[kind], f"the value of {key}")


def _take_metadata(cursor: _Cursor, count: int) -> dict[str, Any]:
    metadata: dict[str, Any] = {}
    for i in range(count):
        name = cursor.text(MAX_NAME_BYTES, f"key {i}")
        if name in metadata:
            cursor.fail(f"the key {quote(name)} appears twice")
        metadata[name] = _take_value(cursor, quote(name))
    return metadata


def _get_alignment(cursor: _Cursor, metadata: dict[str, Any]) -> int:
    value = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    if type(value) is not int or not 8 <= value <= MAX_ALIGNMENT or value & (value - 1):
        shown = value if isinstance(value, (int, float)) else type(value).__name__
        cursor.fail(f"general.alignment is {shown}; it must be a power of two from 8 to {MAX_ALIGNMENT}")
    return value


def _take_shape(cursor: _Cursor, what: str) -> tuple[int, ...]:
    dims = cursor.scalar(U32, f"the number of dimensions of {what}")
    if not 1 <= dims <= MAX_DIMS:
        cursor.fail(f"{what} has {dims} dimensions; 1 to {MAX_DIMS} are possible")
    shape = tuple(cursor.scalar(U64, f"the shape of {what}") for _ in range(dims))[::-1]
    size = 1
    for extent in shape:
        size *= extent
    if not 0 < size < 1 << 63:
        cursor.fail(f"{what} has the impossible shape {shape}")
    return shape


def _take_tensor(cursor: _Cursor, index: int) -> TensorInfo:
    """Take one entry of the table; `offset` is still relative to where the data starts."""
    name = cursor.text(MAX_NAME_BYTES, f"the name of tensor {index}")
    what = f"tensor {quote(name)}"
    shape = _take_shape(cursor, what)
    type_id = cursor.scalar(U32, f"the type of {what}")
    if type_id not in GGML_TYPES:
        raise UnsupportedError(f"{cursor.path}: {what} {describe_unknown_type(type_id)}")
    form = GGML_TYPES[type_id]
    if shape[-1] % form.group_size:
        cursor.fail(f"{what} is {form.name} with rows of {shape[-1]}, not a multiple of {form.group_size}")
    size = form.group_bytes
    for extent in (*shape[:-1], shape[-1] // form.group_size):
        size *= extent
    return TensorInfo(name, type_id, form.name, shape, size, cursor.scalar(U64, f"the offset of {what}"))


def _take_tensors(cursor: _Cursor, count: int) -> list[TensorInfo]:
    table: dict[str, TensorInfo] = {}
    for i in range(count):
        info = _take_tensor(cursor, i)
        if info.name in table:
            cursor.fail(f"the tensor {quote(info.name)} appears twice")
        table[info.name] = info
    return list(table.values())


def _place(cursor: _Cursor, table: list[TensorInfo], alignment: int, part: int) -> dict[str, TensorInfo]:
    """Turn offsets into positions in the file, and check that the file holds what they name."""
    start = -(-cursor.at // alignment) * alignment
    placed = {}
    for t in table:
        if t.offset % alignment:
            cursor.fail(f"tensor {quote(t.name)} has offset {t.offset}, not a multiple of {alignment}")
        placed[t.name] = TensorInfo(t.name, t.type_id, t.type_name, t.shape, t.nbytes, start + t.offset, part)
    last = max(placed.values(), key=lambda t: t.offset + t.nbytes, default=None)
    if last is not None and last.offset + last.nbytes > cursor.size:
        end = last.offset + last.nbytes
        cursor.fail(
            f"{end - cursor.size} bytes are missing (tensor {quote(last.name)} ends at byte {end},"
            f" the file has {cursor.size})"
        )
    return placed


def _describe_stranger(head: bytes) -> str:
    """Guess what a file without GGUF's magic is."""
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if text.startswith((b"<!doctype", b"<html", b"<?xml", b"<head")):
        return "it is a web page, probably an error or login page saved by a download"
    if text.startswith(b"version https://git-lfs"):
        return "it is a Git LFS pointer; fetch the real file with `git lfs pull`"
    if head[:4] in (b"lmgg", b"tjgg", b"fmgg", b"algg"):
        return "it is a GGML file from before GGUF; convert the model again"
    if head[:4] == b"PK\x03\x04":
        return "it is a zip archive"
    if head[8:10] == b'{"':
        return "it looks like safetensors; take the model's GGUF version"
    if head and all(32 <= b < 127 or b in b"\t\r\n" for b in head):
        return f"it is text that starts {quote(head[:40])}"
    return f"it starts with the bytes {head[:4].hex(' ')} instead of 47 47 55 46"


def _check_magic(buffer: Buffer, path: str) -> None:
    head = buffer[:64]
    if head[:4] == b"GGUF":
        return
    if head and b"GGUF".startswith(head):
        raise ModelFileError(f"{path} is truncated: it holds {len(head)} bytes of a GGUF file; download it again")
    reason = _describe_stranger(head) if head else "it is empty"
    raise ModelFileError(f"{path} is not a GGUF file: {reason}")


def _check_version(version: int, path: str) -> None:
    if version in (2, 3):
        return
    if version and not version & 0xFFFF:
        raise UnsupportedError(
            f"{path} is a big-endian GGUF file; edgellm reads little-endian ones: convert it or take another"
        )
    hint = "convert the model again" if version < 2 else "take another file or a newer edgellm"
    raise UnsupportedError(f"{path} is GGUF version {version}; edgellm reads versions 2 and 3: {hint}")


def load_header(buffer: Buffer, path: str, part: int = 0) -> Header:
    """Read the head of a GGUF file of which `buffer` is the whole content; `path` is for messages.

    Raises ModelFileError for a file that is not GGUF, is cut short or contradicts itself, UnsupportedError for a sound
    file of another version or byte order or with an unknown tensor type.
    """
    _check_magic(buffer, path)
    cursor = _Cursor(buffer, 4, path)
    version = cursor.scalar(U32, "the version")
    _check_version(version, path)
    num_tensors = cursor.count(MAX_TENSORS, MIN_TENSOR_BYTES, "tensors")
    num_keys = cursor.count(MAX_KEYS, MIN_KEY_BYTES, "metadata keys")
    metadata = _take_metadata(cursor, num_keys)
    alignment = _get_alignment(cursor, metadata)
    return Header(version, metadata, _place(cursor, _take_tensors(cursor, num_tensors), alignment, part))
