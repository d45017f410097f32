"""What clients of all kinds are made to ask, so that their tests differ in the clients only."""

from __future__ import annotations

from typing import Any

HI: list[dict[str, Any]] = [{"role": "user", "content": "Hi"}]
WEATHER: list[dict[str, Any]] = [{"role": "user", "content": "How is the weather in Paris?"}]
LONG: list[dict[str, Any]] = [{"role": "user", "content": "word " * 1200}]
PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string", "enum": ["Paris", "Rome"]}},
    "required": ["city"],
    "additionalProperties": False,
}
FUNCTION = {"name": "get_weather", "description": "The weather of a city.", "parameters": PARAMETERS}
TOOL: dict[str, Any] = {"type": "function", "function": FUNCTION}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"kind": {"enum": ["cat", "dog"]}, "tame": {"type": "boolean"}},
    "required": ["kind", "tame"],
    "additionalProperties": False,
}
FORM: dict[str, Any] = {"type": "json_schema", "json_schema": {"name": "animal", "schema": SCHEMA, "strict": True}}
WEATHER_TOLD = "It is mild in Paris."
"""What the model of `reciting_model.py` says once it knows."""


def letter_of(text: str) -> str:
    """A letter of an answer's middle, to stop at."""
    return next(letter for letter in text[len(text) // 2 :] + text if letter.isascii() and letter.isprintable())
