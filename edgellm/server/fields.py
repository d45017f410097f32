"""The JSON of a request, and its fields: every one checked where it is read, each mistake named.

Knows JSON, no meaning. Next hop: `sampling.py`, `chat.py`.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

from .problems import ApiError, bad

_TEXT = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


def read_object(body: bytes, max_nesting: int) -> Fields:
    """Read the body of a request. Raises ApiError if it is not one JSON object, nested no deeper than max_nesting."""
    depth = nesting(body)
    if depth > max_nesting:
        raise ApiError(400, f"the body is nested {depth} deep; {max_nesting} is the limit")
    try:
        value = json.loads(body.decode(), parse_constant=_refuse, parse_float=_finite)
        if b"\\u" in body:  # escapes may spell half a character (a lone surrogate), which is no text
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:  # errors of Unicode are of that kind too
        raise ApiError(400, f"the body is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ApiError(400, f"the body must be a JSON object, not {type(value).__name__}")
    return Fields(value)


def nesting(body: bytes) -> int:
    """How deep arrays and objects lie within each other, found without recursion."""
    deepest = depth = 0
    for bracket in _TEXT.sub(b"", body).translate(None, _NO_BRACKETS):
        if bracket in b"[{":
            depth += 1
            deepest = max(deepest, depth)
        else:
            depth -= 1
    return deepest


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text[:40]} is larger than any number here")
    return value


class Fields:
    """The fields of a JSON object. null counts as missing, as OpenAI's clients send it."""

    def __init__(self, values: dict[str, Any]) -> None:
        self.values = values

    def get(self, name: str) -> Any:
        """The value as it is, None if it is missing."""
        return self.values.get(name)

    def text(self, name: str, default: str | None = None) -> str | None:
        """A text."""
        value = self.get(name)
        if value is None:
            return default
        if not isinstance(value, str):
            raise bad(name, value, "a text")
        return value

    def flag(self, name: str, default: bool = False) -> bool:
        """true or false."""
        value = self.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise bad(name, value, "true or false")
        return value

    def whole(self, name: str, low: int, high: int, default: int | None = None) -> int | None:
        """A whole number; 3.0 is one."""
        value = self.get(name)
        if value is None:
            return default
        number = int(value) if isinstance(value, float) and value.is_integer() else value
        if isinstance(number, bool) or not isinstance(number, int) or not low <= number <= high:
            raise bad(name, value, f"a whole number from {low} to {high}")
        return number

    def number(self, name: str) -> float | None:
        """A finite number."""
        value = self.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise bad(name, value, "a number")
        try:
            return float(value)
        except OverflowError:  # a whole number may have any number of digits
            raise bad(name, "a number beyond 1e308", "a smaller one") from None

    def texts(self, name: str, most: int) -> tuple[str, ...]:
        """A text or a list of texts."""
        value = self.get(name)
        if value is None:
            return ()
        texts = [value] if isinstance(value, str) else value
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts) or len(texts) > most:
            raise bad(name, value, f"a text or a list of up to {most} texts")
        return tuple(texts)

    def object(self, name: str) -> dict[str, Any] | None:
        """An object."""
        value = self.get(name)
        if value is not None and not isinstance(value, dict):
            raise bad(name, value, "an object")
        return value

    def objects(self, name: str) -> list[dict[str, Any]] | None:
        """A list of objects."""
        value = self.get(name)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise bad(name, value, "a list of objects")
        return value
