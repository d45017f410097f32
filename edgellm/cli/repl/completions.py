"""What may follow what is typed after a slash: commands, settings, saved conversations. Knows no screen.

Next hop: `commands.py`, `settings.py` and `saved.py`, where the words come from.
"""

from __future__ import annotations

from . import saved, settings
from .commands import COMMANDS, SHOW_TOPICS

Candidates = list[tuple[str, str]]


def complete(text: str) -> tuple[int, Candidates]:
    """Return how many letters before the cursor are a beginning, and the words with a meaning that begin so."""
    if not text.startswith("/") or "\n" in text:
        return 0, []
    *before, word = text.split(" ")
    words = [part for part in before if part]
    return len(word), [(name, meaning) for name, meaning in _may_follow(words) if name.startswith(word)]


def _may_follow(words: list[str]) -> Candidates:
    if not words:
        return [(f"/{name}", command.help) for name, command in COMMANDS.items()]
    if words[0] in ("/load", "/save") and len(words) == 1:
        return [(name, "") for name in saved.names()]
    if words[0] == "/show" and len(words) == 1:
        return list(SHOW_TOPICS.items())
    if words[0] == "/set" and len(words) == 1:
        return list(settings.TOPICS.items())
    if words[:2] == ["/set", "parameter"]:
        if len(words) == 2:
            return [(name, f"now {value}") for name, value in settings.DEFAULTS.items()]
        if len(words) == 3:
            return [(value, "") for value in settings.usual_values(words[2])]
    return []
