"""What was typed at the prompt, kept between sessions: one JSON text a line, readable by its owner alone.

Knows no screen. Next hop: `rich_prompt.py` offers it with the arrow keys.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

from ...private_file import make_folder, open_private, write_whole

MOST_BYTES = 1 << 20
LONGEST = 10_000  # letters; what is longer was pasted, and belongs to a file rather than here


class Recall:
    """The kept lines of a file, oldest first in `texts`. A file that cannot be read or written costs the memory only."""

    def __init__(self, path: Path, *, reads: bool = True) -> None:
        self._path = path
        self.texts = self._read() if reads else []

    def add(self, text: str) -> None:
        """Keep a text, unless it is the last one again or very long."""
        if not text.strip() or len(text) > LONGEST or (self.texts and self.texts[-1] == text):
            return
        self.texts.append(text)
        with contextlib.suppress(OSError):
            make_folder(self._path.parent)
            with os.fdopen(open_private(self._path, os.O_APPEND), "ab") as file:
                file.write(_line(text))

    def _read(self) -> list[str]:
        try:
            with self._path.open("rb") as file:
                file.seek(0, os.SEEK_END)
                size = file.tell()
                file.seek(max(0, size - MOST_BYTES))
                lines = file.read().split(b"\n")
        except OSError:
            return []
        texts = [text for text in map(_parse, lines[1:] if size > MOST_BYTES else lines) if text]
        if size > MOST_BYTES:
            with contextlib.suppress(Exception):
                texts = texts[len(texts) // 2 :]
                write_whole(self._path, b"".join(map(_line, texts)), "the history")
        return texts


def _line(text: str) -> bytes:
    return json.dumps(text).encode() + b"\n"


def _parse(line: bytes) -> str:
    try:
        text = json.loads(line)
    except (ValueError, RecursionError):
        return ""
    return text if isinstance(text, str) else ""
