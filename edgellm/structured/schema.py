"""What a user gives as a schema, as JSON text that the compiler can be trusted with.

A dictionary, JSON text, true, or a class with Pydantic's methods (Pydantic itself is never imported). Next hops: `limits.py`
refuses what is too large, `endless.py` what no finite text can satisfy.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ..errors import OptionError
from .endless import find_endless
from .limits import MAX_DEPTH, check_limits

MAX_SCHEMA_CHARS = 1_000_000


def is_model(schema: object) -> bool:
    """Say whether a schema is a Pydantic model class, or one that behaves like it."""
    return isinstance(schema, type) and hasattr(schema, "model_json_schema") and hasattr(schema, "model_validate_json")


def schema_text(schema: Any) -> str:
    """Return a schema as JSON text. Raises OptionError for what is no schema, too large, too deep or without an end."""
    value = _load(schema)
    if value is True:
        return "{}"
    if value is False:
        raise OptionError("schema is false, which no answer satisfies")
    if not isinstance(value, dict):
        raise OptionError(f"schema must be a JSON object, not {type(value).__name__}")
    check_limits(value)
    if place := find_endless(value):
        raise OptionError(f"schema has no end: at {place} every answer would hold itself once more; make it optional")
    text = _dump(value)
    if len(text) > MAX_SCHEMA_CHARS:
        raise OptionError(f"schema has {len(text)} characters; the limit is {MAX_SCHEMA_CHARS}")
    return text


def _load(schema: Any) -> Any:
    if is_model(schema):
        return _close(schema.model_json_schema())
    if not isinstance(schema, str):
        return dict(schema) if isinstance(schema, Mapping) else schema
    if len(schema) > MAX_SCHEMA_CHARS:
        raise OptionError(f"schema has {len(schema)} characters; the limit is {MAX_SCHEMA_CHARS}")
    try:
        return json.loads(schema)
    except RecursionError:
        raise OptionError(f"schema is nested too deeply; the limit is {MAX_DEPTH} levels") from None
    except ValueError as error:
        raise OptionError(f"schema is not JSON: {error}") from None


def _close(schema: dict[str, Any]) -> dict[str, Any]:
    """Let objects hold what their classes have and nothing else, unless the class itself says more: it would be dropped."""
    waiting: list[Any] = [schema]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            if value.get("type") == "object" and isinstance(value.get("properties"), dict):
                value.setdefault("additionalProperties", False)
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
    return schema


def _dump(value: dict[str, Any]) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        text.encode()
    except (TypeError, ValueError) as error:
        raise OptionError(f"schema holds what JSON cannot: {error}") from None
    return text
