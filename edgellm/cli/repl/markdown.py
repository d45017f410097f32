"""Draws blocks of Markdown with rich, and nothing that is in the text is lost on the way.

HTML, images, reference definitions and backslashes are shown as they are written, links with their address; a line break is
a line break; words too long for a cell are folded. Knows no screen. Next hop: `live_screen.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from rich.markdown import Heading, Markdown, TableElement
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text
from rich.theme import Theme

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.segment import Segment

# The terminal's own sixteen colours and no backgrounds: readable on light and dark screens alike.
CODE_THEME = "ansi_dark"
THEME = Theme(
    {
        "markdown.code": "cyan",
        "markdown.code_block": "cyan",
        "markdown.h1": "bold underline",
        "markdown.h2": "bold",
        "markdown.h3": "bold",
        "markdown.h4": "bold italic",
        "markdown.link": "underline",
        "markdown.link_url": "dim",
        "markdown.block_quote": "italic",
        "markdown.hr": "dim",
        "markdown.item.bullet": "bold",
        "markdown.item.number": "bold",
        "markdown.table.border": "dim",
        "markdown.table.header": "bold",
    }
)
CONTEXT_LINES = 24  # of code above a line, so that its colours are right inside strings and comments that span lines
MAX_COLOURED = 400  # letters of a line of code; a longer one is data, and colouring may take long
NARROWEST_COLUMN = 6


class _LeftHeading(Heading):
    """A heading at the left edge: centred ones jump while they grow."""

    LEVEL_ALIGN = dict.fromkeys(("h1", "h2", "h3", "h4", "h5", "h6"), "left")


class _FoldingTable(TableElement):
    """A table whose cells are folded where they are too wide, never cut; one row a paragraph where columns are too many."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        head = [cell.content for cell in self.header.row.cells] if self.header and self.header.row else []
        rows = [[cell.content for cell in row.cells] for row in self.body.rows] if self.body else []
        if len(head) * NARROWEST_COLUMN > options.max_width:
            for row in [head, *rows]:
                yield Text(" | ").join(row)
            return
        (table,) = (part for part in super().__rich_console__(console, options) if isinstance(part, Table))
        for column in table.columns:
            column.overflow = "fold"
        yield table


class ChatMarkdown(Markdown):
    """rich's Markdown, as the module's first lines say."""

    elements: ClassVar = {**Markdown.elements, "heading_open": _LeftHeading, "table_open": _FoldingTable}

    def __init__(self, text: str) -> None:
        from markdown_it import MarkdownIt

        super().__init__("", code_theme=CODE_THEME, hyperlinks=False)
        parser = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"])
        self.parsed = parser.disable(["reference", "image", "escape"]).parse(text)
        for token in self.parsed:
            for child in token.children or ():
                if child.type == "softbreak":
                    child.type = "hardbreak"


class Drawn:
    """Lines that are drawn already, for `Console.print` and `Live`."""

    def __init__(self, lines: list[list[Segment]]) -> None:
        self.lines = lines

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        from rich.segment import Segment

        for line in self.lines:
            yield from line
            yield Segment.line()


def draw(console: Console, what: Any) -> list[list[Segment]]:
    """Return the lines of something that rich can draw, without empty ones around nor spaces at their ends."""
    lines = [_trim(line) for line in console.render_lines(what, console.options.update(height=None), pad=False)]
    while lines and not lines[0]:
        del lines[0]
    while lines and not lines[-1]:
        del lines[-1]
    return lines


class CodePainter:
    """Colours the lines of one piece of code, one after the other."""

    def __init__(self, language: str) -> None:
        self._syntax = Syntax("", language or "text", theme=CODE_THEME, background_color="default")
        self._has_colours = bool(language) and self._syntax.lexer is not None
        self._above: list[str] = []

    def paint(self, line: str, *, keep: bool = True) -> Text:
        """Return a line in colours; `keep` it as what stands above the next one."""
        painted = Text(line, "markdown.code_block")
        if self._has_colours and len(line) <= MAX_COLOURED:
            lines = self._syntax.highlight("\n".join([*self._above, line])).split("\n", allow_blank=True)
            painted = lines[len(self._above)] if len(lines) > len(self._above) else painted
        if keep:
            self._above = [*self._above, line[:MAX_COLOURED]][-CONTEXT_LINES:]
        painted.overflow = "fold"
        return painted


def _trim(line: list[Segment]) -> list[Segment]:
    line = list(line)
    while line and not line[-1].text.strip():
        line.pop()
    return [*line[:-1], line[-1]._replace(text=line[-1].text.rstrip())] if line else []
