"""Text that arrives token by token: whole characters only, and nothing of a stop string.

Knows bytes, characters and stop strings; ids only through the tokenizer's `token_bytes`.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from typing import Protocol


class HasTokenBytes(Protocol):
    """What a stream needs of a tokenizer."""

    def token_bytes(self, token: int) -> bytes: ...


class TextStream:
    """Turns pieces into text that can be shown at once.

    Holds back only bytes that may still become a character, and only the end of the text that may still become a stop
    string. The first stop string to be complete ends the stream (the longest, where two end together); it is no part
    of the text. How the text is cut into pieces changes nothing. `stopped` tells whether a stop string was met.
    """

    def __init__(self, tokenizer: HasTokenBytes | None = None, stop: Sequence[str] = ()) -> None:
        self._tokenizer = tokenizer
        self._stop = tuple(stop)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""
        self.stopped = False

    def push(self, token: int) -> str:
        """Take a token and return the text that became certain, perhaps none."""
        assert self._tokenizer is not None, "a stream without a tokenizer takes bytes only"
        return self.push_bytes(self._tokenizer.token_bytes(token))

    def push_bytes(self, piece: bytes) -> str:
        """Take bytes and return the text that became certain, perhaps none."""
        if self.stopped:
            return ""
        text = self._decoder.decode(piece)
        waiting = bytes(self._decoder.getstate()[0])
        if waiting[:1] == b"\xed" and waiting[1:] >= b"\xa0":
            # Half a surrogate is never a character. Python's decoder waits for the third byte all the same.
            text += self._decoder.decode(b"", final=True)
        return self._release(text)

    def finish(self) -> str:
        """Return what is still held back: no more will come. A cut character becomes one U+FFFD."""
        if self.stopped:
            return ""
        text = self._release(self._decoder.decode(b"", final=True))
        held, self._held = self._held, ""
        return text + held

    def _release(self, new: str) -> str:
        if not self._stop:
            return new
        text = self._held + new
        cut = self._find_stop(text)
        if cut is not None:
            self.stopped, self._held = True, ""
            return text[:cut]
        keep = self._count_undecided(text)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def _find_stop(self, text: str) -> int | None:
        """Return where the stop string begins that is complete first."""
        found = [(at + len(stop), at) for stop in self._stop if (at := text.find(stop)) >= 0]
        return min(found)[1] if found else None

    def _count_undecided(self, text: str) -> int:
        """Return the length of the longest end of the text that begins a stop string."""
        longest = min(len(text), max(map(len, self._stop)) - 1)
        for length in range(longest, 0, -1):
            tail = text[-length:]
            if any(stop.startswith(tail) for stop in self._stop):
                return length
        return 0
