"""Files that only their owner may read, written whole or not at all. Next hop: whoever keeps something."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from .errors import ResourceError


def make_folder(path: Path) -> None:
    """Make a folder that is the user's alone, where it does not exist yet."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)


def open_private(path: Path, flags: int) -> int:
    """Return a descriptor of a file that is made, if it has to be, for its owner alone."""
    return os.open(path, flags | os.O_WRONLY | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o600)


def write_whole(path: Path, content: bytes, what: str) -> None:
    """Write a file; one of this name is replaced once the new one is whole and on the disk.

    what: what it is, for the error. Raises ResourceError where it cannot be written; the old file is then as it was.
    """
    part = path.with_name(f".{path.name}.{os.urandom(4).hex()}.part")
    try:
        with os.fdopen(open_private(part, os.O_EXCL), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())  # a rename may reach the disk before what it names
        os.replace(part, path)
    except (OSError, ValueError) as error:  # ValueError: a name that no system takes
        reason = getattr(error, "strerror", None) or error
        raise ResourceError(f"{what} cannot be written to {path} ({reason}); choose another place") from None
    finally:
        with contextlib.suppress(OSError, ValueError):
            part.unlink(missing_ok=True)
