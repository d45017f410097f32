"""Read text that is still arriving as if it were all there: a reader that waits, for literals and for JSON.

Every method that reads is a generator: it yields where it needs more text and goes on when it is resumed. So a format is
written down as straight-line code, and how its text was cut into pieces cannot matter. Knows JSON (RFC 8259), and no
model's way to call. Next hop: `families`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from typing import TypeVar

T = TypeVar("T")
Steps = Generator[None, None, T]
Write = Callable[[str], object]

MAX_DEPTH = 64
"""Levels of a JSON value; what is deeper is no call."""
_SPACE = " \t\n\r"
_PLAIN = re.compile(r'[^"\\\x00-\x1f]+')
_WORD = re.compile(r"[-+.0-9A-Za-z]*")
_SCALAR = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?|true|false|null")
_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


class MalformedError(Exception):
    """The text is not what the format says: it is no call. Never leaves this folder."""


class Reader:
    """Text on its way.

    text: all that has come. at: where reading stands. settled: what lies before is used up, whatever comes.
    is_ended: nothing more will come.
    """

    def __init__(self, text: str = "") -> None:
        self.text = text
        self.at = 0
        self.settled = 0
        self.is_ended = False

    def settle(self) -> None:
        """What was read so far belongs to finished calls, even if the rest turns out to be none."""
        self.settled = self.at

    def peek(self) -> Steps[str]:
        """Return the next letter without taking it, "" at the end of the text."""
        while self.at >= len(self.text):
            if self.is_ended:
                return ""
            yield
        return self.text[self.at]

    def skip_space(self) -> Steps[None]:
        """Go on to the next letter that is no white space."""
        while (letter := (yield from self.peek())) and letter in _SPACE:
            self.at += 1

    def take(self, literal: str) -> Steps[bool]:
        """Go past a literal and return True; where something else comes, stay and return False."""
        start = self.at
        for letter in literal:
            if (yield from self.peek()) != letter:
                self.at = start
                return False
            self.at += 1
        return True

    def need(self, literal: str) -> Steps[None]:
        """Go past a literal. Raises MalformedError where something else comes."""
        if not (yield from self.take(literal)):
            raise MalformedError

    def take_last(self, literal: str) -> Steps[None]:
        """Go past white space and a literal, if they come; a text that was cut inside the literal is read too."""
        start = self.at
        yield from self.skip_space()
        place = self.at
        if (yield from self.take(literal)):
            return
        self.at = len(self.text) if self.is_ended and literal.startswith(self.text[place:]) else start

    def read_while(self, pattern: re.Pattern[str]) -> Steps[str]:
        """Return the longest text of letters that the pattern, one letter long, matches."""
        start = self.at
        while (letter := (yield from self.peek())) and pattern.fullmatch(letter):
            self.at += 1
        return self.text[start : self.at]

    def read_until(self, literal: str, or_end: bool = False) -> Steps[str]:
        """Return the text before a literal and go past it. Raises MalformedError if it never comes, unless or_end."""
        start = self.at
        while (place := self.text.find(literal, start)) < 0:
            if self.is_ended:
                if not or_end:
                    raise MalformedError
                self.at = len(self.text)
                return self.text[start:]
            yield
        self.at = place + len(literal)
        return self.text[start:place]

    def read_string(self) -> Steps[str]:
        """Return a JSON string as it is written, with its quotes."""
        pieces: list[str] = []
        yield from self._string(pieces.append)
        return "".join(pieces)

    def read_value(self, write: Write, depth: int = 0) -> Steps[None]:
        """Read one JSON value, and write it piece by piece as it comes.

        Line ends and other control characters inside strings, which models write and JSON forbids, are escaped.
        Raises MalformedError where it is no JSON, or deeper than MAX_DEPTH.
        """
        letter = yield from self.peek()
        if letter == '"':
            yield from self._string(write)
        elif letter in ("{", "["):
            if depth >= MAX_DEPTH:
                raise MalformedError
            yield from self._container(write, depth + 1, "}" if letter == "{" else "]")
        else:
            yield from self._scalar(write)

    def _container(self, write: Write, depth: int, end: str) -> Steps[None]:
        self._copy(write)
        yield from self._space(write)
        if (yield from self.peek()) == end:
            self._copy(write)
            return
        while True:
            if end == "}":
                yield from self._string(write)
                yield from self._space(write)
                if (yield from self.peek()) != ":":
                    raise MalformedError
                self._copy(write)
                yield from self._space(write)
            yield from self.read_value(write, depth)
            yield from self._space(write)
            letter = yield from self.peek()
            if letter not in (",", end):
                raise MalformedError
            self._copy(write)
            if letter == end:
                return
            yield from self._space(write)

    def _string(self, write: Write) -> Steps[None]:
        if (yield from self.peek()) != '"':
            raise MalformedError
        self._copy(write)
        while True:
            letter = yield from self.peek()
            if not letter:
                raise MalformedError
            if letter == '"':
                self._copy(write)
                return
            if letter == "\\":
                yield from self._escape(write)
            elif letter < " ":
                self.at += 1
                write(_ESCAPES.get(letter, f"\\u{ord(letter):04x}"))
            else:
                plain = _PLAIN.match(self.text, self.at)
                assert plain is not None
                self.at = plain.end()
                write(plain[0])

    def _escape(self, write: Write) -> Steps[None]:
        start = self.at
        self.at += 1
        letter = yield from self.peek()
        if not letter or letter not in '"\\/bfnrtu':
            raise MalformedError
        self.at += 1
        for _ in range(4 if letter == "u" else 0):
            digit = yield from self.peek()
            if not digit or digit not in "0123456789abcdefABCDEF":
                raise MalformedError
            self.at += 1
        write(self.text[start : self.at])

    def _scalar(self, write: Write) -> Steps[None]:
        start = self.at
        while (yield from self.peek()):
            found = _WORD.match(self.text, self.at)
            assert found is not None
            if found.end() == self.at:
                break
            self.at = found.end()
        word = self.text[start : self.at]
        if not _SCALAR.fullmatch(word):
            raise MalformedError
        write(word)

    def _space(self, write: Write) -> Steps[None]:
        start = self.at
        yield from self.skip_space()
        if self.at > start:
            write(self.text[start : self.at])

    def _copy(self, write: Write) -> None:
        write(self.text[self.at])
        self.at += 1
