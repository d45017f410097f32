"""Keep what users write apart from what the template writes, through everything a template does with texts.

A letter of user text that could become part of a control token is replaced by a stand-in, a letter that occurs nowhere
else; after rendering, stand-ins are turned back and their places are what no control token may cover. Knows messages as
nested lists and mappings; ids come from `tokenizer`. `marked.py` lets a template look through the stand-ins.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any

from ..tokenizer import Tokenizer
from ..tokenizer.special import repair

# Stand-ins come from rare ideographs: printable, without cases, no white space, so that no method of texts, no `repr`
# and no JSON changes them. There are more of them than letters in the names of tokens.
_STAND_INS = range(0x20000, 0x2A6D6)
_BETWEEN = "\U0010ffff"  # no character: no text holds it
_ESCAPED = frozenset(" \t\r\n\"'\\")
# Templates write these into markers of their own, as in '<|' + role + '|>'.
ROLES = frozenset(
    [
        "system",
        "user",
        "assistant",
        "tool",
        "developer",
        "function",
        "ipython",
        "environment",
        "observation",
        "model",
        "context",
    ]
)


def texts_in(value: Any) -> Iterator[str]:
    """Yield every text in nested lists and mappings, names of fields too."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from texts_in(key)
            yield from texts_in(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from texts_in(item)


class Guard:
    """Knows which places in user text could become part of a control token.

    Those are spellings of control tokens, ends and beginnings that the template's own text could complete, and, where
    asked for, texts that fit inside one.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._texts = tokenizer.guarded_texts
        self._longest = max(map(len, self._texts), default=0)
        self._first_letters = {text[0] for text in self._texts}
        self._last_letters = {text[-1] for text in self._texts}

    def places(self, text: str, inside: bool = False) -> set[int]:
        """Return the places to mark. inside: also texts that fit inside a token."""
        places = set()
        at = 0
        while (found := self._tokenizer.find_guarded(text, at)) is not None:
            places |= _worth_marking(text, *found)
            at = found[0] + 1
        tail, head = text[-self._longest :], text[: self._longest]
        if not self._first_letters.isdisjoint(tail):
            places |= {len(text) - n for n in range(1, len(tail) + 1) if tail[-n:] in self._beginnings}
        if not self._last_letters.isdisjoint(head):
            places |= {n - 1 for n in range(1, len(head) + 1) if head[:n] in self._ends}
        if inside and 0 < len(text) < self._longest and _BETWEEN not in text and text in self._insides:
            places |= _worth_marking(text, 0, len(text))
        return places

    @cached_property
    def _beginnings(self) -> set[str]:
        return {text[:n] for text in self._texts for n in range(1, len(text))}

    @cached_property
    def _ends(self) -> set[str]:
        return {text[n:] for text in self._texts for n in range(1, len(text))}

    @cached_property
    def _insides(self) -> str:
        return _BETWEEN.join(text[1:-1] for text in self._texts)


def _worth_marking(text: str, start: int, end: int) -> set[int]:
    """Return places in a spelling: all of its signs, so that one is left whatever a template cuts away, or one letter.

    Letters may change their case, and what JSON and Python escape must stay what it is: those are the last choice.
    """
    places = {i for i in range(start, end) if not text[i].isalnum() and text[i] not in _ESCAPED}
    return places or {next((i for i in range(start, end) if text[i] not in _ESCAPED), start)}


class Marks:
    """Replaces marked letters by stand-ins, which a template that trims, cuts or joins carries along."""

    def __init__(self, guard: Guard, taken: set[str]) -> None:
        """taken: letters that occur in the template or in what users wrote."""
        self._guard = guard
        self._free = (c for c in map(chr, _STAND_INS) if c not in taken)
        self._stand_ins: dict[str, str] = {}
        self._real: dict[int, str] = {}

    def take(self) -> str:
        """Return a letter that occurs nowhere else."""
        return next(self._free)

    def mark(self, value: Any, inside: bool = False, exempt: frozenset[str] = frozenset()) -> Any:
        """Return a copy of nested lists and mappings with stand-ins in their texts.

        inside: texts that fit inside a control token too, except those that are `exempt`; never names of fields.
        """
        if isinstance(value, str):
            places = self._guard.places(value, inside and value not in exempt)
            return self._replace(value, places) if places else value
        if isinstance(value, Mapping):
            return {self.mark(key): self.mark(item, inside, exempt) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.mark(item, inside, exempt) for item in value]
        return value

    @property
    def is_empty(self) -> bool:
        """Whether nothing was marked."""
        return not self._stand_ins

    @property
    def letters(self) -> frozenset[str]:
        """The letters that stand for others."""
        return frozenset(self._stand_ins.values())

    def plain(self, value: Any) -> Any:
        """Return what a value says: the value itself where it holds no mark."""
        if isinstance(value, str):
            return value.translate(self._real) if self._is_marked(value) else value
        if isinstance(value, (list, tuple, dict)) and any(map(self._is_marked, texts_in(value))):
            if isinstance(value, dict):
                return {self.plain(key): self.plain(item) for key, item in value.items()}
            items = [self.plain(item) for item in value]
            return tuple(items) if isinstance(value, tuple) else items
        return value

    def unmark(self, text: str) -> tuple[str, list[int]]:
        """Return the rendered text with its real letters, and the sorted places that were marked."""
        text = repair(text)  # now, because it moves places
        letters = self.letters
        places = [i for i, letter in enumerate(text) if letter in letters]
        return text.translate(self._real), places

    def _is_marked(self, text: str) -> bool:
        return not text.isascii() and any(letter in text for letter in self._stand_ins.values())

    def _replace(self, text: str, places: Iterable[int]) -> str:
        letters = list(text)
        for place in places:
            letter = text[place]
            if letter not in self._stand_ins:
                self._stand_ins[letter] = next(self._free)
                self._real[ord(self._stand_ins[letter])] = letter
            letters[place] = self._stand_ins[letter]
        return "".join(letters)
