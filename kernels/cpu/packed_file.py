"""A file that holds packed matrices, so that later starts map it instead of packing. Every length is checked before use.

Layout: magic, u64 bytes of the table, SHA-256 of the table, the table as JSON; from `data_offset` on the matrices, then
readable bytes for prefetches past the end. Written beside its place and renamed there when it is whole and on the disk.
Knows no model: what the matrices belong to is a text that the caller gives. Next hop: `../../packing.py`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import mmap
import os
import shutil
import stat
import struct
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, astuple, dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from ...errors import ResourceError
from .memory import SLACK, address, aligned
from .sources import read_layout_sources
from .threads import Threads
from .weights import Matrix, Progress, pack_pieces, packed_bytes, packed_size, pieces

PART_SUFFIX = ".packed-part"
_MAGIC = b"edgellm packed 1"
_PREFIX = struct.Struct("<16sQ32s")
_ALIGNMENT = 2 << 20  # where the matrices begin: a large page, which some systems give to files
_MOST_TABLE_BYTES = 64 << 20


class UnusableError(Exception):
    """A packed file is damaged, truncated, no packed file, or of something else. The message says which, in a few words."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a matrix lies in the file, and what it is."""

    name: str
    format: str
    rows: int
    width: int
    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Table:
    """What a packed file says of itself. model: where the model lay, for people; identity decides."""

    layout: str
    identity: str
    model: str
    entries: tuple[Entry, ...]
    file_bytes: int


def layout_version() -> str:
    """Name of the way that matrices are packed here. It changes with any source that has a say in that, and with the byte
    order; not with the instruction level, on which no layout depends.
    """
    return hashlib.sha256(sys.byteorder.encode() + read_layout_sources()).hexdigest()


# ---- writing ----
def write_packed(
    path: Path,
    identity: str,
    model: str,
    matrices: Mapping[str, Matrix],
    kernels: Mapping[str, int],
    threads: Threads,
    forget: Callable[[str], None],
    progress: Progress | None = None,
) -> int:
    """Pack raw matrices into a file. -> its bytes. All of it or nothing: an error or Ctrl-C leaves what was there before.

    forget(name) is called when the pages of a raw matrix are no longer wanted. progress("pack", done, total) counts bytes.
    Raises ResourceError when the disk has no room or the folder cannot be written.
    """
    table = _make_table(identity, model, matrices)
    part = path.with_name(f".{path.stem}.{os.getpid()}{PART_SUFFIX}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _require_room(path.parent, table.file_bytes)
        with part.open("wb") as out:
            _write(out, table, matrices, kernels, threads, forget, progress)
            out.flush()
            os.fsync(out.fileno())  # a rename may reach the disk before what it names
        os.replace(part, path)
    except OSError as error:
        raise ResourceError(
            f"{path} cannot be written ({error.strerror}); it takes {table.file_bytes / 1e9:.2f} GB: "
            "free some space, or choose another place with --output or EDGELLM_HOME"
        ) from error
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
    return table.file_bytes


def _make_table(identity: str, model: str, matrices: Mapping[str, Matrix]) -> Table:
    at, entries = _ALIGNMENT, []
    for name, m in matrices.items():
        assert not m.packed, f"{name} is packed already"
        entries.append(Entry(name, m.format.name, m.rows, m.width, at, packed_bytes(m)))
        at += packed_bytes(m)
    end = -(-(at + SLACK) // mmap.PAGESIZE) * mmap.PAGESIZE
    table = Table(layout_version(), identity, model, tuple(entries), end)
    assert len(_encode(table)) <= _ALIGNMENT, "the table has its room before the matrices"
    return table


def _encode(table: Table) -> bytes:
    text = json.dumps(asdict(table) | {"entries": [astuple(e) for e in table.entries]}).encode()
    return _PREFIX.pack(_MAGIC, len(text), hashlib.sha256(text).digest()) + text


def _require_room(folder: Path, nbytes: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < nbytes:
        raise ResourceError(
            f"the packed file needs {nbytes / 1e9:.2f} GB, {folder} has {free / 1e9:.2f} GB free; free some space, "
            "or choose another place with --output or EDGELLM_HOME"
        )


def _write(
    out: BinaryIO,
    table: Table,
    matrices: Mapping[str, Matrix],
    kernels: Mapping[str, int],
    threads: Threads,
    forget: Callable[[str], None],
    progress: Progress | None,
) -> None:
    out.write(_encode(table))
    total, done = packed_size(matrices), 0
    for entry, matrix in zip(table.entries, matrices.values(), strict=True):
        out.seek(entry.offset)
        room: NDArray[np.uint8] = aligned(0)
        for piece in pieces(matrix, 0):
            nbytes = piece.packed_bytes
            room = room if len(room) >= nbytes else aligned(nbytes)
            pack_pieces([replace(piece, to=address(room))], kernels, threads)
            out.write(room[:nbytes].data)
            forget(entry.name)
            done += nbytes
            if progress:
                progress("pack", min(done, total - 1), total)
    out.truncate(table.file_bytes)
    if progress:
        progress("pack", total, total)


# ---- reading ----
class PackedFile:
    """An open packed file. Its matrices are read-only views, which keep the map alive; processes share its pages."""

    def __init__(self, path: Path, table: Table, mapped: mmap.mmap) -> None:
        self.path, self.table, self._map = path, table, mapped

    def matrices(self, wanted: Mapping[str, Matrix]) -> dict[str, NDArray[np.uint8]]:
        """-> u8[nbytes] of each wanted matrix. Raises UnusableError unless all are there, in the same format and shape."""
        entries = {e.name: e for e in self.table.entries}
        found = {}
        for name, m in wanted.items():
            e = entries.get(name)
            if e is None or (e.format, e.rows, e.width) != (m.format.name, m.rows, m.width):
                raise UnusableError(f"it lacks {name} as the model has it")
            if e.nbytes != packed_bytes(m):
                raise UnusableError(f"{name} has a wrong length")
            found[name] = np.frombuffer(self._map, np.uint8, e.nbytes, e.offset)
        return found


def open_packed(path: Path, identity: str) -> PackedFile:
    """Map a packed file of the model that `identity` stands for. Raises UnusableError, which says why it is of no use."""
    try:
        with _open(path) as file:
            table = _load_table(file)
            if table.layout != layout_version():
                raise UnusableError("it was packed by another version of edgellm")
            if table.identity != identity:
                raise UnusableError("the model has changed since")
            mapped = mmap.mmap(file.fileno(), table.file_bytes, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        raise UnusableError(f"it cannot be read: {getattr(error, 'strerror', None) or error}") from None
    _advise(mapped)
    return PackedFile(path, table, mapped)


def read_table(path: Path) -> Table:
    """Read what a packed file says of itself, whatever it belongs to. Raises UnusableError."""
    try:
        with _open(path) as file:
            return _load_table(file)
    except (OSError, ValueError) as error:
        raise UnusableError(f"it cannot be read: {getattr(error, 'strerror', None) or error}") from None


def _open(path: Path) -> BinaryIO:
    if not stat.S_ISREG(path.stat().st_mode):  # asked before opening: opening a pipe would wait for its writer
        raise UnusableError("it is not a file")
    return path.open("rb")


def _load_table(file: BinaryIO) -> Table:
    size = os.fstat(file.fileno()).st_size
    prefix = file.read(_PREFIX.size)
    if len(prefix) < _PREFIX.size or not prefix.startswith(_MAGIC):
        raise UnusableError("it is no packed file of this version")
    _, nbytes, digest = _PREFIX.unpack(prefix)
    if nbytes > min(size, _MOST_TABLE_BYTES):
        raise UnusableError("it is truncated or damaged")
    text = file.read(nbytes)
    if hashlib.sha256(text).digest() != digest:
        raise UnusableError("it is truncated or damaged")
    table = _parse(text)
    if table.file_bytes != size:
        raise UnusableError(f"it has {size} bytes instead of {table.file_bytes}")
    return table


def _parse(text: bytes) -> Table:
    """Turn the JSON into a table of which every place lies inside the file."""
    try:
        values: dict[str, Any] = json.loads(text)
        entries = tuple(Entry(*items) for items in values.pop("entries"))
        table = Table(entries=entries, **values)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise UnusableError("its table makes no sense") from None
    texts = [table.layout, table.identity, table.model, *(t for e in entries for t in (e.name, e.format))]
    numbers = [table.file_bytes, *(n for e in entries for n in (e.rows, e.width, e.offset, e.nbytes))]
    if not all(type(t) is str for t in texts) or not all(type(n) is int and n >= 0 for n in numbers):
        raise UnusableError("its table makes no sense")
    for e in entries:
        if e.offset % 64 or e.offset + e.nbytes + SLACK > table.file_bytes:
            raise UnusableError(f"its table puts {e.name[:64]!a} outside the file")
    return table


def _advise(mapped: mmap.mmap) -> None:
    """Ask for large pages; some systems have them for files. Advice: nothing is wrong when the system does not take it.

    Asking for all of it to be read ahead gained nothing, and would push out everything else where memory is short.
    """
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):
            mapped.madvise(mmap.MADV_HUGEPAGE)
