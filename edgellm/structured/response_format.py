"""OpenAI's `response_format` in terms of SamplingParams. Knows the shape of that object only.

Source: OpenAI API reference, "Create chat completion", response_format.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import OptionError

KINDS = ("text", "json_object", "json_schema")


def from_response_format(response_format: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the fields of SamplingParams that a response_format stands for; none for plain text.

    A schema is always kept to, whatever `strict` says: nothing is lost by that. Raises OptionError for any other shape.
    """
    if response_format is None:
        return {}
    if not isinstance(response_format, Mapping):
        raise OptionError(f"response_format must be an object with a type, not {type(response_format).__name__}")
    kind = response_format.get("type")
    if kind not in KINDS:
        raise OptionError(f"response_format.type must be one of {', '.join(KINDS)}, not {kind!r}")
    if kind == "text":
        return {}
    if kind == "json_object":
        return {"json": True}
    inner = response_format.get("json_schema")
    if not isinstance(inner, Mapping):
        raise OptionError("response_format.json_schema must be an object that holds the schema")
    if not isinstance(inner.get("strict", False), (bool, type(None))):
        raise OptionError(f"response_format.json_schema.strict must be true or false, not {inner['strict']!r}")
    schema = inner.get("schema")
    if schema is None:
        return {"json": True}
    if not isinstance(schema, (Mapping, bool)):
        raise OptionError(f"response_format.json_schema.schema must be a JSON Schema, not {type(schema).__name__}")
    return {"schema": schema if isinstance(schema, bool) else dict(schema)}
