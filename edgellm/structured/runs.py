"""Reads along in a JSON answer for runs that would never end: blanks, and digits of one number.

A grammar allows them, a model may love them: blanks inside a string, a fraction's digits. Knows bytes only; what is to be
done about a run says `constraint.py`.
"""

from __future__ import annotations

from typing import NamedTuple

MAX_BLANKS = 40
"""Blanks in a row, strings included: room for code that is indented ten levels deep."""
MAX_DIGITS = 25
"""Digits in a row of a number: a 64-bit one, or a float's, has 20 at most."""
MAX_DIGITS_IN_STRING = 64
"""Digits in a row of a string: a time's fraction of a second may have any number of them."""
BLANKS = b" \t\r\n"
DIGITS = b"0123456789"
_QUOTE, _BACKSLASH = b'"\\'


class Run(NamedTuple):
    """Where an answer stands. blanks, digits: how many of them in a row it ends in."""

    blanks: int = 0
    digits: int = 0
    is_in_string: bool = False
    is_escaped: bool = False

    @property
    def too_long(self) -> bytes:
        """The bytes of a run that is long enough; none while there is none."""
        if self.blanks >= MAX_BLANKS:
            return BLANKS
        return DIGITS if self.digits >= (MAX_DIGITS_IN_STRING if self.is_in_string else MAX_DIGITS) else b""

    def after(self, text: bytes) -> Run:
        """Return where it stands after some more bytes."""
        blanks, digits, is_in_string, is_escaped = self
        for byte in text:
            blanks = blanks + 1 if byte in BLANKS else 0
            digits = digits + 1 if byte in DIGITS else 0
            if is_escaped:
                is_escaped = False
            elif byte == _QUOTE:
                is_in_string = not is_in_string
            else:
                is_escaped = is_in_string and byte == _BACKSLASH
        return Run(blanks, digits, is_in_string, is_escaped)
