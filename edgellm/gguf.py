"""Open a GGUF model: one file or all files of a split one, mapped, never read as a whole.

Knows files and where tensors lie in them; what a header's bytes mean is `gguf_header.py`, what keys and tensors mean is
the business of `loader.py`, the tokenizer and the architectures.
"""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import os
import re
import stat
import struct
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import ModelFileError
from .gguf_header import Header, StringArray, TensorInfo, load_header, quote
from .gguf_types import GGML_TYPES, GGMLType

__all__ = ["GGML_TYPES", "GGMLType", "GGUFFile", "StringArray", "TensorInfo", "open_gguf"]

_SAMPLES, _SAMPLE_BYTES = 16, 4096  # of a file's tensors: places that two models of one shape differ in
_SPLIT_NAME = re.compile(r"^(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf$", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Part:
    """One file of a model: its map, and what the system said of it when it was opened."""

    path: Path
    map: mmap.mmap
    status: os.stat_result


class GGUFFile:
    """An open model. Metadata scalars are Python values, numeric arrays NumPy arrays, string arrays `StringArray`."""

    def __init__(self, path: Path, parts: list[Part], headers: list[Header]) -> None:
        maps = [part.map for part in parts]
        self.path = path
        self.parts = tuple(part.path for part in parts)
        self.statuses = tuple(part.status for part in parts)
        self.metadata: dict[str, Any] = headers[0].metadata
        self.tensors: dict[str, TensorInfo] = {}
        self.nbytes = sum(len(m) for m in maps)
        self._maps = maps
        for header in headers:
            for name, info in header.tensors.items():
                if name in self.tensors:
                    raise ModelFileError(f"{path}: the tensor {quote(name)} appears in two files of the split model")
                self.tensors[name] = info

    def data(self, name: str) -> npt.NDArray[np.uint8]:
        """Return a tensor's bytes: a read-only view, uint8[nbytes]. Raises ModelFileError for a wrong name."""
        info = self._find(name)
        return np.frombuffer(self._map_of(info), np.uint8, info.nbytes, info.offset)

    def forget(self, name: str) -> None:
        """Give a tensor's mapped pages back to the system; reading it again maps them anew. Does nothing on Windows."""
        info = self._find(name)
        _forget(self._map_of(info), info.offset, info.offset + info.nbytes)

    def forget_headers(self) -> None:
        """The same for everything before the tensors: a vocabulary is megabytes, and rarely read twice."""
        for part, mapped in enumerate(self._maps):
            starts = [info.offset for info in self.tensors.values() if info.part == part]
            _forget(mapped, 0, min(starts, default=len(mapped)))

    def identity(self) -> str:
        """Return a text that is another one when the model is: a hash of its files' sizes, times of change, heads (names
        and places of all tensors included) and of samples of their tensors. Reading gigabytes to be surer would take longer
        than what the answer is wanted for.
        """
        digest = hashlib.sha256()
        for part, mapped in enumerate(self._maps):
            starts = sorted(info.offset for info in self.tensors.values() if info.part == part)
            head = starts[0] if starts else len(mapped)
            digest.update(struct.pack("<QQQ", len(mapped), self.statuses[part].st_mtime_ns, head))
            with memoryview(mapped) as view:
                digest.update(view[:head])
                for start in starts[:: -(-len(starts) // _SAMPLES) or 1]:
                    digest.update(view[start : start + _SAMPLE_BYTES])
        return digest.hexdigest()

    def get(self, key: str, default: Any = None) -> Any:
        """Return a metadata value, or `default` where the file lacks the key."""
        return self.metadata.get(key, default)

    def require(self, key: str) -> Any:
        """Return a metadata value. Raises ModelFileError, naming the key, where the file lacks it."""
        if key not in self.metadata:
            raise ModelFileError(
                f"{self.path}: the metadata lacks {key}; the file is incomplete or not a language model"
            )
        return self.metadata[key]

    def close(self) -> None:
        """Unmap the files. Views that still exist stay valid; their file stays mapped until the last one is gone."""
        maps, self._maps = self._maps, []
        _close_maps(maps)

    def _find(self, name: str) -> TensorInfo:
        if name not in self.tensors:
            raise ModelFileError(f"{self.path}: the tensor {quote(name)} is missing")
        return self.tensors[name]

    def _map_of(self, info: TensorInfo) -> mmap.mmap:
        if not self._maps:
            raise ValueError(f"{self.path} is closed")
        return self._maps[info.part]

    def __enter__(self) -> GGUFFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_gguf(path: str | os.PathLike[str]) -> GGUFFile:
    """Open a model, given its file or any file of a split one (`-00001-of-00003.gguf`).

    Raises ModelFileError where a file is missing, not GGUF, truncated or damaged, UnsupportedError for a sound file of
    an unknown version, byte order or tensor type.
    """
    path = Path(path)
    parts: list[Part] = []
    try:
        headers = [_open_part(path, parts)]
        count = _get_count(headers[0], "split.count", 1, path)
        if count > 1:
            _close_maps([part.map for part in parts])
            parts.clear()
            paths = _find_parts(path, count)
            headers = [_open_part(p, parts) for p in paths]
            _check_parts(paths, headers)
        return GGUFFile(path, parts, headers)
    except BaseException:
        _close_maps([part.map for part in parts])
        raise


def _open_part(path: Path, parts: list[Part]) -> Header:
    """Map a file, add it to `parts`, return the file's header."""
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):  # asked before opening: opening a pipe would wait for its writer
            raise ModelFileError(f"{path} is not a file" + (" but a folder" if stat.S_ISDIR(mode) else ""))
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            if not status.st_size:
                return load_header(b"", str(path))
            parts.append(Part(path, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), status))
    except FileNotFoundError:
        raise ModelFileError(f"{path} does not exist") from None
    except (OSError, ValueError) as error:
        raise ModelFileError(f"{path} cannot be opened: {getattr(error, 'strerror', None) or error}") from None
    return load_header(parts[-1].map, str(path), len(parts) - 1)


def _forget(mapped: mmap.mmap, start: int, end: int) -> None:
    if not hasattr(mmap, "MADV_DONTNEED"):
        return
    # Whole pages only: the pages at the edges hold other tensors too, and may be in use.
    page = mmap.PAGESIZE
    start, end = -(-start // page) * page, end // page * page
    if end > start:
        with contextlib.suppress(OSError):  # advice: nothing is wrong when the system does not take it
            mapped.madvise(mmap.MADV_DONTNEED, start, end - start)


def _close_maps(maps: list[mmap.mmap]) -> None:
    for mapped in maps:
        with contextlib.suppress(BufferError):  # arrays still look at it: the last of them unmaps it
            mapped.close()


def _get_count(header: Header, key: str, default: int, path: Path) -> int:
    value = header.metadata.get(key, default)
    if type(value) is not int or value < 0:
        raise ModelFileError(f"{path}: {key} must be a whole number, not {quote(str(value))}")
    return value


def _find_parts(path: Path, count: int) -> list[Path]:
    match = _SPLIT_NAME.match(path.name)
    if match is None:
        raise ModelFileError(
            f"{path} is one of {count} files of a split model, but its name does not end in -00001-of-{count:05d}.gguf:"
            " give the files their original names"
        )
    if int(match["count"]) != count:
        raise ModelFileError(f"{path}: its name says {int(match['count'])} files, its metadata says {count}")
    parts = [path.with_name(f"{match['stem']}-{i:05d}-of-{count:05d}.gguf") for i in range(1, count + 1)]
    missing = [part.name for part in parts if not part.is_file()]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise ModelFileError(f"{path}: {missing[0]}{more} of the {count} files of this model is missing beside it")
    return parts


def _check_parts(parts: list[Path], headers: list[Header]) -> None:
    for i, (part, header) in enumerate(zip(parts, headers, strict=True)):
        number, count = _get_count(header, "split.no", 0, part), _get_count(header, "split.count", 1, part)
        if (number, count) != (i, len(parts)):
            raise ModelFileError(
                f"{part}: its metadata says file {number + 1} of {count}, its name {i + 1} of {len(parts)}"
            )
    found = sum(len(header.tensors) for header in headers)
    declared = _get_count(headers[0], "split.tensors.count", found, parts[0])
    if declared != found:
        raise ModelFileError(
            f"{parts[0]}: the model should have {declared} tensors, its {len(parts)} files hold {found}"
        )
