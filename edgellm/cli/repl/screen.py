"""Where answers appear: as raw text on a pipe or a plain terminal, drawn by `live_screen.py` on a capable one.

Next hop: `session.py`, which speaks to it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from ..terminal import is_terminal, write_piece
from .answering import Progress


@dataclass
class View:
    """How the user wants to see things. markdown: drawn. verbose: figures after every answer. history: kept on disk."""

    markdown: bool = True
    verbose: bool = False
    history: bool = True


class Screen(Protocol):
    """Shows one answer after the other."""

    def start(self) -> None:
        """An answer begins."""

    def say(self, text: str) -> None:
        """Show more of the answer."""

    def think(self, text: str) -> None:
        """Show more of what the model thinks before it answers."""

    def tick(self, look: Callable[[], Progress]) -> None:
        """A moment has passed: say how far the answer is, where that can be shown."""

    def finish(self) -> None:
        """The answer has ended, for whatever reason; the cursor stands on a new line afterwards."""


class PlainScreen:
    """Text as it comes: a pipe gets it as it is, a terminal without control characters."""

    def __init__(self) -> None:
        self._last = "\n"

    def start(self) -> None:
        """An answer begins."""
        self._last = "\n"

    def say(self, text: str) -> None:
        """Show more of the answer."""
        if text:
            write_piece(text)
            self._last = text

    def think(self, text: str) -> None:
        """Thoughts are no part of the answer, and here nothing could tell them apart."""

    def tick(self, look: Callable[[], Progress]) -> None:
        """Nothing here can be taken back, so nothing is said that will not stay."""

    def finish(self) -> None:
        """End the last line."""
        if not self._last.endswith("\n"):
            write_piece("\n")


def is_capable() -> bool:
    """Say whether answers go to a terminal that can move its cursor."""
    return is_terminal(sys.stdout) and os.environ.get("TERM") not in ("dumb", "unknown")


def make_screen(view: View) -> Screen:
    """Return the best screen for standard output."""
    if not is_capable():
        return PlainScreen()
    from .live_screen import LiveScreen, make_console

    console = make_console()
    return PlainScreen() if console.legacy_windows else LiveScreen(console, view)
