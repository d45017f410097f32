'''Texts of several lines: three quotation marks open one, three close it, as in `"""` first line, last line `"""`.

Next hop: `plain_prompt.py` and `rich_prompt.py` read on while a text is open, `session.py` takes the marks off.
'''

from __future__ import annotations

import re

MARK = '"""'
_OPENS = re.compile(r'\s*(?:/\w+ (?:.* )?)?"""', re.DOTALL)


def is_open(text: str) -> bool:
    """Say whether a text, or a command's argument, begins with the mark and has not ended yet."""
    match = _OPENS.match(text)
    return match is not None and MARK not in text[match.end() :]


def unwrap(text: str) -> str:
    """Return a text without marks around it; one that was never closed ends where the input did."""
    stripped = text.strip()
    if not stripped.startswith(MARK):
        return text
    inner = stripped[len(MARK) :]
    inner = inner[: -len(MARK)] if inner.endswith(MARK) else inner
    return inner.strip("\n")
