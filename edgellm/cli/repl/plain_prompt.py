"""Reads questions from a pipe, or from a terminal that cannot move its cursor. Next hop: `rich_prompt.py` for the others."""

from __future__ import annotations

import contextlib
import sys
from importlib import import_module
from typing import Protocol

from ..terminal import is_terminal, note
from .multiline import is_open

PROMPT = "> "
CONTINUED = "  "


class Prompt(Protocol):
    """Asks the user."""

    offers: bool
    """True if it can show a text to be edited."""

    def read(self, offer: str = "") -> str | None:
        """Return what the user wrote, beginning from `offer`; None when they leave."""


class PlainPrompt:
    """One line at a time; at a terminal Ctrl-C drops the line being typed."""

    offers = False

    def __init__(self) -> None:
        self._is_typed = is_terminal(sys.stdin)
        self._is_seen = self._is_typed and is_terminal(sys.stdout)
        if self._is_typed:
            with contextlib.suppress(ImportError):  # Windows has none, and edits lines by itself
                import_module("readline")  # gives input() its line editing and history

    def read(self, offer: str = "") -> str | None:
        """Return the next line, or all lines of a text in three quotation marks; None at the end."""
        while True:
            try:
                return self._read_all()
            except EOFError:
                if self._is_typed:
                    note("")
                return None
            except KeyboardInterrupt:
                if not self._is_typed:
                    raise
                note("\n(/exit or Ctrl-D leaves)")

    def _read_all(self) -> str:
        text = input(PROMPT if self._is_seen else "")
        with contextlib.suppress(EOFError):  # a text without an end is taken as it is
            while is_open(text):
                text += "\n" + input(CONTINUED if self._is_seen else "")
        return text
