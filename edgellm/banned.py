"""Texts that must not be said: a watcher that finds them in generated ids, however they are cut into tokens.

Knows bytes of tokens and texts; what is taken back and never chosen there again is `choosing.py`'s part, the next hop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence


class BannedTexts:
    """A Watcher for texts. token_bytes: the bytes that an id adds to the text.

    As soon as an id completes a banned text, all ids from the one on in which it begins must go. Ids whose end may still
    become one are held.
    """

    def __init__(self, texts: Sequence[str], token_bytes: Callable[[int], bytes]) -> None:
        self._texts = [text.encode() for text in texts]
        self._token_bytes = token_bytes
        self._reach = max(map(len, self._texts)) - 1  # bytes of what came before that a text may begin in
        self._pieces: list[bytes] = []

    def accept(self, token_id: int) -> int:
        """Take a generated id. -> how many of the last ids, this one included, must go; 0 to go on."""
        self._pieces.append(self._token_bytes(token_id))
        before = self._end(len(self._pieces) - 1, self._reach)
        text = before + self._pieces[-1]
        found = [at for banned in self._texts if (at := text.find(banned, max(0, len(before) + 1 - len(banned)))) >= 0]
        return self._count_from(len(text) - min(found)) if found else 0

    def take_back(self, num_tokens: int) -> None:
        """Forget the last `num_tokens` ids."""
        del self._pieces[len(self._pieces) - num_tokens :]

    @property
    def num_held(self) -> int:
        """How many of the last ids may still have to be taken back: the text's end begins something banned."""
        end = self._end(len(self._pieces), self._reach)
        for length in range(len(end), 0, -1):
            tail = end[len(end) - length :]
            if any(banned.startswith(tail) for banned in self._texts):
                return self._count_from(length)
        return 0

    def _end(self, count: int, size: int) -> bytes:
        """The last `size` bytes of the first `count` ids."""
        found = b""
        while count and len(found) < size:
            count -= 1
            found = self._pieces[count] + found
        return found[max(0, len(found) - size) :]

    def _count_from(self, num_bytes: int) -> int:
        """How many of the last ids the last `num_bytes` bytes lie in."""
        count = 0
        while num_bytes > 0:
            count += 1
            num_bytes -= len(self._pieces[-count])
        return count
