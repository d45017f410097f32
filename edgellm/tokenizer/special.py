"""Find the texts of special tokens in a text, before anything else cuts it.

Control tokens are found only where asked for; user-defined ones always, as in llama.cpp. Where several fit, the
leftmost and then the longest wins. Knows nothing of merges. Used by the facade in `__init__.py`.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence

Piece = str | int


class Finder:
    """Finds any of a set of texts in time linear in the text, however many they are (Gemma has 6,400)."""

    def __init__(self, ids: Mapping[str, int]) -> None:
        self._ids = dict(ids)
        self._lengths = _group_lengths(self._ids)
        self._start = _make_start_pattern(self._lengths)

    def find(self, text: str, start: int = 0) -> tuple[int, int] | None:
        """Return where the next special token begins and ends, the longest of that place, or None."""
        if self._start is not None:
            for match in self._start.finditer(text, start):
                for length in self.lengths_at(text, match.start()):
                    end = match.start() + length
                    if end <= len(text) and text[match.start() : end] in self._ids:
                        return match.start(), end
        return None

    def lengths_at(self, text: str, start: int) -> Sequence[int]:
        """Return the lengths worth trying at a place, longest first."""
        return self._lengths.get(text[start : start + 2], ()) or self._lengths.get(text[start : start + 1], ())

    def starts(self, text: str) -> Iterable[int]:
        """Yield every place where a special token may begin."""
        return (m.start() for m in self._start.finditer(text)) if self._start is not None else ()

    @property
    def texts(self) -> list[str]:
        """The texts that are found."""
        return list(self._ids)

    def get(self, text: str) -> int | None:
        """Return the id of a special token's text."""
        return self._ids.get(text)


class Splitter:
    """Cuts a text into special tokens and the texts between them.

    `guarded` ids are those that text of a user must not spell; `rstrip` ids swallow the white space after them (Phi-3).
    """

    def __init__(
        self,
        control: Mapping[str, int],
        user_defined: Mapping[str, int],
        guarded: frozenset[int],
        rstrip: frozenset[int] = frozenset(),
    ) -> None:
        self._all = Finder({**user_defined, **control})
        self._user_defined = Finder(user_defined)
        self._guarded = guarded
        self._rstrip = rstrip
        self.guard = Finder({t: i for t, i in {**user_defined, **control}.items() if i in guarded})

    def split(self, text: str, special: bool, protected: Sequence[int] = ()) -> list[Piece]:
        """Return the pieces in order; no text is empty. `protected`: sorted places that no guarded token may cover."""
        finder = self._all if special else self._user_defined
        pieces: list[Piece] = []
        done = 0
        for start in finder.starts(text):
            if start < done:
                continue
            token, end = self._match(finder, text, start, protected)
            if token is None:
                continue
            if start > done:
                pieces.append(text[done:start])
            pieces.append(token)
            done = _skip_space(text, end) if token in self._rstrip else end
        if done < len(text):
            pieces.append(text[done:])
        return pieces

    def get(self, text: str) -> int | None:
        """Return the id of a special token's text."""
        return self._all.get(text)

    def _match(self, finder: Finder, text: str, start: int, protected: Sequence[int]) -> tuple[int | None, int]:
        for length in finder.lengths_at(text, start):
            token = finder.get(text[start : start + length])
            if token is None:
                continue
            if token in self._guarded and protected:
                place = bisect_left(protected, start)
                if place < len(protected) and protected[place] < start + length:
                    continue
            return token, start + length
        return None, start


def _group_lengths(texts: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """Map the first two characters (one, of one-character texts) to the lengths of the texts that begin so."""
    groups: dict[str, set[int]] = {}
    for text in texts:
        groups.setdefault(text[:2], set()).add(len(text))
    for key, lengths in groups.items():
        if len(key) == 2 and key[0] in groups:
            lengths.add(1)
    return {key: tuple(sorted(lengths, reverse=True)) for key, lengths in groups.items()}


def _make_start_pattern(keys: Iterable[str]) -> re.Pattern[str] | None:
    seconds: dict[str, str] = {}
    singles = set()
    for key in keys:
        seconds[key[0]] = seconds.get(key[0], "") + key[1:]
        if len(key) == 1:
            singles.add(key)
    parts = []
    for first, following in seconds.items():
        ahead = "" if first in singles else f"(?=[{re.escape(following)}])"
        parts.append(re.escape(first) + ahead)
    return re.compile("|".join(parts), re.DOTALL) if parts else None


def _skip_space(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\n\v\f\r":
        at += 1
    return at


def repair(text: str) -> str:
    """Join surrogate pairs and replace lone surrogates by U+FFFD: neither has a UTF-8 form."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
