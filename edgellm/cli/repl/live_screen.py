"""Draws an answer while it comes: finished blocks for good, below them the block that still grows and a line of figures.

Only the last lines are ever drawn anew, in one write, so nothing flickers and scrolling back shows each line once. Knows no
model. Next hop: `blocks.py` cuts, `markdown.py` draws.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live
from rich.text import Text

from ..terminal import is_terminal, printable
from .answering import Progress
from .blocks import Block, Blocks, Lines
from .markdown import THEME, ChatMarkdown, CodePainter, Drawn, draw

if TYPE_CHECKING:
    from rich.segment import Segment

    from .screen import View

_EMPTY: list[list[Segment]] = [[]]
FRAME_S = 0.1
PATIENCE_S = 0.4  # a prompt that is read sooner needs no word about it
REST_SHARE = 4  # drawing may take at most a fourth of the time: where it is slow, it is done less often
MOST_DRAWN = (
    4000  # letters of an unfinished block that are drawn as Markdown; more is shown as it is until it is complete
)


class LiveScreen:
    """A Screen on a terminal that can move its cursor."""

    def __init__(self, console: Console, view: View, *, is_live: bool = True) -> None:
        self._console = console
        self._view = view
        self._is_live = is_live
        self._cleanup = contextlib.ExitStack()
        self._blocks: Blocks | Lines = Lines()
        self._thoughts = Lines()
        self._painter = CodePainter("")
        self._live: Live | None = None
        self._status = ""
        self._is_changed = False
        self._has_thought = False
        self._next_frame_s = 0.0

    def start(self) -> None:
        """An answer begins."""
        self._blocks = Blocks() if self._view.markdown else Lines()
        self._thoughts = Lines()
        self._status, self._has_thought, self._next_frame_s = "", False, 0.0
        if self._is_live:
            self._cleanup.enter_context(without_echo())
            self._live = Live(
                get_renderable=self._draw_rest,
                console=self._console,
                auto_refresh=False,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()

    def say(self, text: str) -> None:
        """Show more of the answer."""
        self._is_changed = self._is_changed or bool(text)
        if self._has_thought and text:
            self._has_thought = False
            self._print([*self._thoughts.finish(), Block("")], "dim italic")
        self._print(self._blocks.feed(printable(text)))

    def think(self, text: str) -> None:
        """Show more of what the model thinks before it answers."""
        self._is_changed = self._has_thought = True
        self._print(self._thoughts.feed(printable(text)), "dim italic")

    def tick(self, look: Callable[[], Progress]) -> None:
        """Draw anew what is not finished, if it is time for that."""
        began_s = time.perf_counter()
        if self._live is None or began_s < self._next_frame_s:
            return
        status = describe(look())
        if self._is_changed or status != self._status:
            self._is_changed, self._status = False, status
            self._live.refresh()
        took_s = time.perf_counter() - began_s
        self._next_frame_s = began_s + max(FRAME_S, REST_SHARE * took_s)

    def finish(self) -> None:
        """Draw what is left, for good."""
        with self._cleanup:
            if self._live is not None:
                self._live.stop()
                self._live = None
            self._print(self._thoughts.finish(), "dim italic")
            self._print([*self._blocks.finish(), Block("")])

    def _print(self, blocks: list[Block], style: str = "") -> None:
        """Print blocks for good, above what is drawn anew."""
        lines = [line for block in blocks for line in self._draw(block, style, keep=True)]
        if lines:
            self._console.print(Drawn(lines), end="")

    def _draw(self, block: Block, style: str = "", *, keep: bool) -> list[list[Segment]]:
        gap: list[list[Segment]] = [[]] if block.gap else []
        if block.is_code:
            painter = CodePainter(block.language) if block.is_start else self._painter
            if keep:
                self._painter = painter
            return gap + (draw(self._console, painter.paint(block.text, keep=keep)) or _EMPTY)
        if style or isinstance(self._blocks, Lines):
            return gap + (draw(self._console, Text(block.text, style, overflow="fold")) or _EMPTY)
        return gap + (draw(self._console, ChatMarkdown(block.text)) or _EMPTY)

    def _draw_rest(self) -> Drawn:
        """What is drawn anew: the end of the growing block, as much of it as the screen can hold, and the figures."""
        thoughts = self._thoughts.rest()
        rest = thoughts if self._has_thought else self._blocks.rest()
        lines: list[list[Segment]] = []
        if rest is not None and len(rest.text) > MOST_DRAWN:
            lines = draw(self._console, Text(rest.text[-MOST_DRAWN:], overflow="fold"))
        elif rest is not None:
            lines = self._draw(rest, "dim italic" if self._has_thought else "", keep=False)
        status = draw(self._console, Text(self._status, "dim", no_wrap=True, overflow="ellipsis"))
        room = max(self._console.size.height - 2 - len(status), 1)
        return Drawn(lines[-room:] + status)


def describe(progress: Progress) -> str:
    """Say how far an answer is, in one line; nothing where there is nothing to tell."""
    if progress.num_said:
        speed = f"{progress.tokens_per_s:.0f} tokens/s, " if progress.tokens_per_s else ""
        return f"{speed}{progress.num_said} so far (Ctrl-C stops)"
    if progress.elapsed_s < PATIENCE_S or not progress.num_prompt:
        return ""
    text = f"reading {progress.num_prompt} tokens: {100 * progress.num_read // progress.num_prompt} %"
    left = progress.left_s
    return text if left is None else f"{text}, about {max(left, 1):.0f} s left (Ctrl-C stops)"


def make_console(**options: object) -> Console:
    """Return a console that draws what it is told and guesses nothing."""
    return Console(theme=THEME, highlight=False, markup=False, emoji=False, **options)  # type: ignore[arg-type]


@contextlib.contextmanager
def without_echo() -> Iterator[None]:
    """Let keys that are pressed now wait for the next prompt unseen, where the system has a way to say so."""
    try:
        import termios
    except ImportError:  # Windows: its console echoes only what a program reads
        yield
        return
    if not is_terminal(sys.stdin):
        yield
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    quiet = termios.tcgetattr(descriptor)
    quiet[3] &= ~(termios.ECHO | termios.ICANON)  # with ICANON, a line is cut at 4096 bytes
    termios.tcsetattr(descriptor, termios.TCSADRAIN, quiet)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
