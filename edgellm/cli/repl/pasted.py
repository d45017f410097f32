"""A long paste stands in the prompt as one short mark, so that editing around it stays quick.

Knows no screen. Next hop: `rich_prompt.py`.
"""

from __future__ import annotations

import re

FOLD_LETTERS = 1000
FOLD_LINES = 10
LONG_OFFER = 4000  # letters of a question that is offered for editing: it is folded only where editing would be slow
_MARK = re.compile(r"\[pasted(?: #(\d+))?: [\d,]+ characters\]")


class Pasted:
    """`fold` returns a long text's mark and `unfold` puts the texts back; a mark that was edited is ordinary text."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def fold(self, text: str) -> str:
        """Return what stands in the prompt for a pasted text: itself, if it is short."""
        return text if len(text) <= FOLD_LETTERS and text.count("\n") < FOLD_LINES else self._mark(text)

    def fold_offer(self, text: str) -> str:
        """Return what stands in the prompt for a text to be edited."""
        return text if len(text) <= LONG_OFFER else self._mark(text)

    def _mark(self, text: str) -> str:
        number = f" #{len(self._texts) + 1}" if self._texts else ""
        mark = f"[pasted{number}: {len(text):,} characters]"
        self._texts[mark] = text
        return mark

    def unfold(self, text: str) -> str:
        """Return what is meant by the text of the prompt."""
        return _MARK.sub(lambda match: self._texts.get(match[0], match[0]), text)
