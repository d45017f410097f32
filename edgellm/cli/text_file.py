"""A small text file that an option names. Next hops: `form_options.py`, `config_file.py`."""

from __future__ import annotations

from pathlib import Path

from ..errors import OptionError


def read_text(path: str, what: str, limit: int, shown_limit: str) -> str:
    """Return a UTF-8 file's text, without a byte order mark. what: how a message names the file. limit: its most bytes, which
    messages call shown_limit. Raises OptionError."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(limit + 1)
    except OSError as error:
        raise OptionError(f"{what} cannot be read: {error.strerror}") from None
    if len(data) > limit:
        raise OptionError(f"{what} is larger than {shown_limit}")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise OptionError(f"{what} is not valid UTF-8 at byte {error.start}") from None
