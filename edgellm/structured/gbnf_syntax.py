"""Reads GBNF text into rules. Knows the notation, not what is done with it. Source: llama.cpp, grammars/README.md."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NoReturn, TypeAlias

from ..errors import OptionError, UnsupportedError

_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", '"': '"', "[": "[", "]": "]"}
_HEX_DIGITS = {"x": 2, "u": 4, "U": 8}
_SPACE = re.compile(r"(?:[ \t]|#[^\r\n]*)*")
_SPACE_AND_LINES = re.compile(r"(?:[ \t\r\n]|#[^\r\n]*)*")
_NAME = re.compile(r"[\w-]+")
_BOUNDS = re.compile(r"\{\s*(\d*)\s*(,?)\s*(\d*)\s*\}")
MAX_REPEAT = 10_000


@dataclass(frozen=True, slots=True)
class Literal:
    """A text."""

    text: str


@dataclass(frozen=True, slots=True)
class Chars:
    """One character of some ranges, both ends included, or of none of them."""

    ranges: tuple[tuple[str, str], ...]
    is_negated: bool = False


@dataclass(frozen=True, slots=True)
class RuleName:
    """What another rule says."""

    name: str


@dataclass(frozen=True, slots=True)
class Repeat:
    """An item `low` to `high` times; None is no limit."""

    item: Item
    low: int
    high: int | None


@dataclass(frozen=True, slots=True)
class Group:
    """One of several sequences."""

    sequences: tuple[tuple[Item, ...], ...]


Item: TypeAlias = "Literal | Chars | RuleName | Repeat | Group"
ANY = Chars((("\0", "\U0010ffff"),))


def parse(text: str) -> dict[str, Group]:
    """Return {rule: its alternatives}. Raises OptionError or UnsupportedError with the line."""
    return _Reader(text).read()


class _Reader:
    """A place in the text that moves on."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def read(self) -> dict[str, Group]:
        rules: dict[str, Group] = {}
        self._skip(_SPACE_AND_LINES)
        while self._at < len(self._text):
            name = self._name()
            self._skip(_SPACE)
            self._expect("::=")
            self._skip(_SPACE_AND_LINES)
            rules[name] = self._alternatives(is_nested=False)
            if self._peek() not in ("", "\r", "\n"):
                self._fail(f"{self._peek()!r} is out of place")
            self._skip(_SPACE_AND_LINES)
        return rules

    def _alternatives(self, is_nested: bool) -> Group:
        sequences = [self._sequence(is_nested)]
        while True:
            place = self._at
            self._skip(_SPACE_AND_LINES)
            if self._peek() != "|":  # a line may also begin with it
                self._at = place
                return Group(tuple(sequences))
            self._at += 1
            self._skip(_SPACE_AND_LINES)
            sequences.append(self._sequence(is_nested))

    def _sequence(self, is_nested: bool) -> tuple[Item, ...]:
        items: list[Item] = []
        space = _SPACE_AND_LINES if is_nested else _SPACE
        self._skip(space)
        while (item := self._item()) is not None:
            self._skip(space)
            items.append(self._repeated(item))
            self._skip(space)
        return tuple(items)

    def _item(self) -> Item | None:
        char = self._peek()
        if char == '"':
            return self._literal()
        if char == "[":
            return self._chars()
        if char == "(":
            self._at += 1
            group = self._alternatives(is_nested=True)
            self._skip(_SPACE_AND_LINES)
            self._expect(")")
            return group
        if char == ".":
            self._at += 1
            return ANY
        if char in ("<", "!"):
            raise UnsupportedError(f"grammar, line {self._line()}: token references are not supported; write text")
        return RuleName(self._name()) if _NAME.match(self._text, self._at) else None

    def _repeated(self, item: Item) -> Item:
        char = self._peek()
        bounds = {"*": (0, None), "+": (1, None), "?": (0, 1)}.get(char)
        if bounds is not None:
            self._at += 1
            return Repeat(item, *bounds)
        if char != "{":
            return item
        found = _BOUNDS.match(self._text, self._at)
        if found is None or not (found[1] or found[3]):
            self._fail("a repetition is written {m}, {m,} or {m,n}")
        self._at = found.end()
        low = int(found[1] or 0)
        high = int(found[3]) if found[3] else (None if found[2] else low)
        if max(low, high or 0) > MAX_REPEAT or (high is not None and high < low):
            self._fail(f"a repetition must be in order and at most {MAX_REPEAT} times, not {found[0]}")
        return Repeat(item, low, high)

    def _literal(self) -> Literal:
        self._at += 1
        chars = []
        while self._peek() != '"':
            chars.append(self._char())
        self._at += 1
        return Literal("".join(chars))

    def _chars(self) -> Chars:
        self._at += 1
        is_negated = self._peek() == "^"
        self._at += is_negated
        ranges = []
        while self._peek() != "]":
            low = high = self._char()
            if self._peek() == "-" and self._text[self._at + 1 : self._at + 2] != "]":
                self._at += 1
                high = self._char()
            if high < low:
                self._fail(f"the range {low!r} to {high!r} runs backwards")
            ranges.append((low, high))
        self._at += 1
        if not ranges:
            self._fail("[] holds no character")
        return Chars(tuple(ranges), is_negated)

    def _char(self) -> str:
        char = self._peek()
        if char == "":
            self._fail("the text ends inside quotes or brackets")
        self._at += 1
        if char != "\\":
            return char
        kind = self._peek()
        self._at += 1
        if kind in _ESCAPES and kind:
            return _ESCAPES[kind]
        digits = self._text[self._at : self._at + _HEX_DIGITS.get(kind, 0)]
        if not digits or len(digits) < _HEX_DIGITS[kind] or not re.fullmatch("[0-9a-fA-F]+", digits):
            self._fail(f"\\{kind}{digits} is no escape")
        self._at += len(digits)
        code = int(digits, 16)
        if code > 0x10FFFF or 0xD800 <= code < 0xE000:
            self._fail(f"\\{kind}{digits} is no character")
        return chr(code)

    def _name(self) -> str:
        found = _NAME.match(self._text, self._at)
        if found is None:
            self._fail("a rule begins with its name")
        self._at = found.end()
        return found[0]

    def _expect(self, what: str) -> None:
        if not self._text.startswith(what, self._at):
            self._fail(f"{what} is missing")
        self._at += len(what)

    def _skip(self, what: re.Pattern[str]) -> None:
        found = what.match(self._text, self._at)
        assert found is not None
        self._at = found.end()

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _line(self) -> int:
        return self._text.count("\n", 0, self._at) + 1

    def _fail(self, what: str) -> NoReturn:
        raise OptionError(f"grammar, line {self._line()}: {what}")
