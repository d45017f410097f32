"""Cuts Markdown that is still growing into blocks: what is finished can be drawn for good, only the rest still changes.

A block is a paragraph, a heading, one item of a list, a table, a quotation; fenced code comes line by line. Follows
CommonMark (spec 0.31, "Blocks and inlines") as far as top-level blocks go. Knows no screen. Next hop: `markdown.py` draws.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_FENCE = re.compile(r"( {0,3})(`{3,}(?=[^`]*$)|~{3,})(.*)$")
_INNER_FENCE = re.compile(r"\s+(`{3,}|~{3,})")
_MAYBE_FENCE = re.compile(r" {0,3}(`{1,2}$|~{1,2}$|```|~~~)")
_HEADING = re.compile(r" {0,3}#{1,6}(\s|$)")
_RULE = re.compile(r" {0,3}([-*_])( *\1){2,} *$")
_UNDERLINE = re.compile(r" {0,3}(=+|-+) *$")
_ITEM = re.compile(r" ?([-*+]|\d{1,9}[.)])(\s|$)")
_FIRST_ITEM = re.compile(r" {0,3}([-*+]|1[.)])\s")
_QUOTE = re.compile(r" {0,3}>")


@dataclass(frozen=True, slots=True)
class Block:
    """Something to draw. gap: an empty line stands before it.

    text: Markdown, or one line of code if is_code; then `language` is what the fence named, is_start marks the first line.
    """

    text: str
    gap: bool = False
    is_code: bool = False
    language: str = ""
    is_start: bool = False


class Blocks:
    """Takes text piece by piece. `feed` and `finish` return the blocks that are complete now, `rest` is what is not."""

    def __init__(self) -> None:
        self._partial = ""
        self._lines: list[str] = []
        self._kind = ""  # of _lines: prose, list, quote
        self._fence = ""  # what opened the code we are in; _indent spaces before it
        self._indent = 0
        self._language = ""
        self._starts_code = False
        self._inner_fence = ""
        self._gap = False
        self._is_first = True

    def feed(self, text: str) -> list[Block]:
        """Take more text."""
        self._partial += text
        if "\n" not in text:
            return []
        *lines, self._partial = self._partial.split("\n")
        return [block for line in lines for block in self._take(line)]

    def finish(self) -> list[Block]:
        """Return what is left at the end of the text."""
        partial, self._partial = self._partial, ""
        blocks = self._take(partial) if partial else []
        return blocks + self._close()

    def rest(self) -> Block | None:
        """Return what is still growing; None if nothing of it can be shown yet."""
        if self._fence:
            is_end = self._partial.lstrip().startswith(self._fence[0] * 2)
            code = self._outdent(self._partial)
            is_shown = bool(code) and not is_end
            return Block(code, self._gap, True, self._language, self._starts_code) if is_shown else None
        partial = "" if _MAYBE_FENCE.match(self._partial) and self._kind != "list" else self._partial
        text = "\n".join([*self._lines, partial] if partial.strip() else self._lines)
        return Block(text, self._gap) if text.strip() else None

    def _take(self, line: str) -> list[Block]:
        if self._fence:
            return self._take_code(line)
        if self._kind == "list" and self._belongs_to_item(line):
            self._lines.append(line)
            return []
        if not line.strip():
            blocks = self._close()
            self._gap = not self._is_first
            return blocks
        if match := _FENCE.match(line):
            blocks = self._close()
            self._indent, self._fence = len(match[1]), match[2]
            self._language = (match[3].split() or [""])[0]
            self._starts_code = True
            self._gap = not self._is_first
            return blocks
        return self._take_prose(line)

    def _take_code(self, line: str) -> list[Block]:
        stripped = line.strip()
        if len(stripped) >= len(self._fence) and not stripped.strip(self._fence[0]):
            self._fence = ""
            self._gap = True
            return []
        block = Block(self._outdent(line), self._gap, True, self._language, self._starts_code)
        self._gap = self._is_first = self._starts_code = False
        return [block]

    def _take_prose(self, line: str) -> list[Block]:
        """Take a line that is not empty and no code, and that an item of a list does not go on with."""
        if self._kind == "prose" and _UNDERLINE.match(line):
            self._lines.append(line)
            return self._close()
        if _HEADING.match(line) or _RULE.match(line):
            blocks = self._close()
            self._gap = not self._is_first
            self._lines, self._kind = [line], "prose"
            return blocks + self._close()
        starts_item = (_FIRST_ITEM if self._kind == "prose" else _ITEM).match(line)
        kind = "list" if starts_item else "quote" if _QUOTE.match(line) else "prose"
        blocks = [] if kind == self._kind and kind != "list" else self._close()
        self._lines.append(line)
        self._kind = kind
        return blocks

    def _belongs_to_item(self, line: str) -> bool:
        if self._inner_fence:
            if line.strip().startswith(self._inner_fence):
                self._inner_fence = ""
            return True
        if match := _INNER_FENCE.match(line):
            self._inner_fence = match[1]
        if not line.strip() or line.startswith(("  ", "\t")):
            return True
        is_other = any(p.match(line) for p in (_ITEM, _FENCE, _HEADING, _RULE, _QUOTE))
        return bool(self._lines[-1].strip()) and not is_other

    def _close(self) -> list[Block]:
        """Return the block that ends here, if there is one."""
        lines, self._lines, self._kind, self._inner_fence = self._lines, [], "", ""
        if not lines:
            return []
        block = Block("\n".join(lines).rstrip(), self._gap)
        self._gap = not lines[-1].strip()
        self._is_first = False
        return [block]

    def _outdent(self, line: str) -> str:
        return line[min(self._indent, len(line) - len(line.lstrip(" "))) :]


class Lines:
    """The same for text that is shown as it is: every line is a block."""

    def __init__(self) -> None:
        self._partial = ""

    def feed(self, text: str) -> list[Block]:
        """Take more text."""
        *lines, self._partial = (self._partial + text).split("\n") if "\n" in text else [self._partial + text]
        return [Block(line) for line in lines]

    def finish(self) -> list[Block]:
        """Return the last line, if it has no end."""
        partial, self._partial = self._partial, ""
        return [Block(partial)] if partial else []

    def rest(self) -> Block | None:
        """Return the line that is still growing."""
        return Block(self._partial) if self._partial else None
