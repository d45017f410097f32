"""Object files on disk: sealed, so that what is damaged, renamed or another's is not taken for ours.

Knows neither kernels nor machines. Next hop: `objects.py` for the user's cache, `shipped.py` for what came with an
application.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import tempfile
from pathlib import Path

from .sources import read_sources

_MAGIC = b"edgellm object 1\n"


@functools.cache
def source_hash() -> str:
    """Hash of the text of all kernels and of what compiles them; "" in a frozen application that lacks it."""
    text = read_sources()
    return "" if text is None else hashlib.sha256(text).hexdigest()


def _seal(folder: Path, name: str, code: bytes) -> bytes:
    """Checksum of an object and of where it belongs: one that was renamed or copied here is not taken for another."""
    return hashlib.sha256(f"{folder.name}/{name}\n".encode() + code).digest()


def write_file(path: Path, data: bytes) -> None:
    """Write a file of which other processes see all or nothing."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.stem)
    try:
        with os.fdopen(handle, "wb") as f:
            f.write(data)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def write_object(folder: Path, name: str, code: bytes) -> None:
    """Put one object into a folder, whose name is part of its seal."""
    write_file(folder / f"{name}.o", _MAGIC + _seal(folder, name, code) + code)


def read_object(folder: Path, name: str) -> bytes | None:
    """-> an object of a folder, or None if it is missing, damaged or another's."""
    try:
        data = (folder / f"{name}.o").read_bytes()
    except OSError:
        return None
    start = len(_MAGIC) + 32
    code = data[start:]
    sound = data.startswith(_MAGIC) and _seal(folder, name, code) == data[len(_MAGIC) : start]
    return code if sound else None
