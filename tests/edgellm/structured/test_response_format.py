"""OpenAI's response_format, each kind of it, and what is none."""

from __future__ import annotations

from typing import Any

import pytest

from edgellm.config import SamplingParams
from edgellm.errors import OptionError
from edgellm.structured import from_response_format

SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}


@pytest.mark.parametrize(
    ("given", "fields"),
    [
        (None, {}),
        ({"type": "text"}, {}),
        ({"type": "json_object"}, {"json": True}),
        ({"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": SCHEMA}}, {"schema": SCHEMA}),
        ({"type": "json_schema", "json_schema": {"name": "x", "strict": None, "schema": SCHEMA}}, {"schema": SCHEMA}),
        ({"type": "json_schema", "json_schema": {"name": "x", "schema": True}}, {"schema": True}),
        ({"type": "json_schema", "json_schema": {"name": "x"}}, {"json": True}),
    ],
)
def test_each_kind_becomes_fields_of_sampling_params(given: Any, fields: dict[str, Any]) -> None:
    assert from_response_format(given) == fields
    assert SamplingParams(**from_response_format(given)).is_structured == bool(fields)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("json_object", "not str"),
        ({}, "response_format.type"),
        ({"type": "xml"}, "'xml'"),
        ({"type": "json_schema"}, "response_format.json_schema"),
        ({"type": "json_schema", "json_schema": []}, "response_format.json_schema"),
        ({"type": "json_schema", "json_schema": {"schema": "{}"}}, "not str"),
        ({"type": "json_schema", "json_schema": {"schema": {}, "strict": "yes"}}, "strict"),
    ],
)
def test_anything_else_is_refused_by_name(given: Any, says: str) -> None:
    with pytest.raises(OptionError) as caught:
        from_response_format(given)
    assert says in str(caught.value)
