"""Methods of marked texts: found by what the text says, cut where its marks are.

A mark stands for exactly one letter, so a place in a marked text is the same place in what it says. A template that
looks for `</think>` finds it whether it is marked or not, and what it cuts out carries its marks along. What is not
listed here works on marked texts as it is. Knows nothing of Jinja; marks are `marks.py`'s.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol


class Marks(Protocol):
    """What this file asks of marks.Marks."""

    @property
    def letters(self) -> frozenset[str]:
        """The letters that stand for others."""

    def plain(self, value: Any) -> Any:
        """Return what a value says."""


def call(
    marks: Marks, method: Callable[..., Any], owner: str, name: str, args: Sequence[Any], options: Mapping[str, Any]
) -> Any:
    """Call a text's method."""
    if name in _KEEPING:
        return method(*args, **options)
    args = tuple(args)
    says = marks.plain(owner)
    if (cut := _CUTTING.get(name)) is not None and (says is not owner or marks.plain(args) != args):
        return cut(owner, says, name, tuple(marks.plain(a) for a in args[:1]) + args[1:], options)
    result = getattr(says, name)(*(marks.plain(a) for a in args), **options) if name in _ASKING else None
    return method(*args, **options) if name not in _ASKING else result


def filter(marks: Marks, name: str, values: Sequence[Any], options: Mapping[str, Any]) -> Any:
    """Apply a filter that looks into texts, or return None where it can do that itself."""
    value = values[0]
    if not isinstance(value, str) or hasattr(value, "__html__"):
        return None
    if name == "urlencode":
        return "".join(_quote(marks, piece) for piece in re.split(f"([{''.join(marks.letters)}])", value))
    if name == "replace" and len(values) >= 3 and isinstance(values[1], str) and isinstance(values[2], str):
        return _replace(value, marks.plain(value), "replace", (marks.plain(values[1]), *values[2:]), options)
    if name == "trim" and len(values) > 1:
        return _strip(value, marks.plain(value), "strip", (marks.plain(values[1]),), options)
    return None


def escape_json(marks: Marks, text: str) -> str:
    """Write letters outside ASCII as JSON's escapes, except marks, whose own letters need none."""

    def escape(match: re.Match[str]) -> str:
        letter = match[0]
        if letter in marks.letters:
            return letter
        units = letter.encode("utf-16-be", "surrogatepass")
        return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))

    return re.sub(r"[^\x00-\x7f]", escape, text)


def _quote(marks: Marks, piece: str) -> str:
    from urllib.parse import quote

    says = marks.plain(piece)
    quoted = quote(says, safe="/")
    return piece if quoted == says else quoted


def _split(text: str, says: str, name: str, args: Sequence[Any], options: Mapping[str, Any]) -> list[str]:
    separator = args[0] if args else options.get("sep")
    parts = getattr(says, name)(*args, **options)
    if separator is None:  # white space is never marked
        found: list[str] = getattr(text, name)(*args, **options)
        return found
    return _cut(text, [len(part) for part in parts], len(separator))


def _cut(text: str, lengths: Sequence[int], between: int) -> list[str]:
    parts, at = [], 0
    for length in lengths:
        parts.append(text[at : at + length])
        at += length + between
    return parts


def _partition(text: str, says: str, name: str, args: Sequence[Any], options: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(_cut(text, [len(part) for part in getattr(says, name)(*args)], 0))


def _strip(text: str, says: str, name: str, args: Sequence[Any], options: Mapping[str, Any]) -> str:
    left = len(says) - len(says.lstrip(*args)) if name != "rstrip" else 0
    kept = len(getattr(says, name)(*args))
    return text[left : left + kept]


def _remove(text: str, says: str, name: str, args: Sequence[Any], options: Mapping[str, Any]) -> str:
    kept = len(getattr(says, name)(*args))
    return text[:kept] if name == "removesuffix" else text[len(text) - kept :]


def _replace(text: str, says: str, name: str, args: Sequence[Any], options: Mapping[str, Any]) -> str:
    old, new, *rest = args
    count = rest[0] if rest else options.get("count", -1)
    count = -1 if count is None else count
    if not old:
        return text.replace(old, new, count)
    return str(new).join(_split(text, says, "split", (old, count), {}))


_Cut = Callable[[str, str, str, Sequence[Any], Mapping[str, Any]], Any]
_CUTTING: dict[str, _Cut] = {
    **dict.fromkeys(("split", "rsplit"), _split),
    **dict.fromkeys(("partition", "rpartition"), _partition),
    **dict.fromkeys(("strip", "lstrip", "rstrip"), _strip),
    **dict.fromkeys(("removeprefix", "removesuffix"), _remove),
    "replace": _replace,
}
_ASKING = frozenset(
    [
        "startswith",
        "endswith",
        "find",
        "index",
        "rfind",
        "rindex",
        "count",
        "isalnum",
        "isalpha",
        "isascii",
        "isdecimal",
        "isdigit",
        "isidentifier",
        "islower",
        "isnumeric",
        "isprintable",
        "isspace",
        "istitle",
        "isupper",
    ]
)
_KEEPING = frozenset(("join", "format", "format_map", "upper", "lower", "title", "capitalize", "splitlines"))
