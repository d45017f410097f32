"""Schemas without an end are found, and those that look alike but have one are not."""

from __future__ import annotations

import time
from typing import Any

import pytest

from edgellm.structured.endless import find_endless, refs_of, resolve

SELF: dict[str, Any] = {"$ref": "#"}


def holds(schema: Any, **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"a": schema}, "required": ["a"], **more}


ENDLESS: list[dict[str, Any]] = [
    SELF,
    {"allOf": [SELF]},
    {"anyOf": [SELF, {"allOf": [SELF]}]},
    holds(SELF),
    holds(holds(holds(SELF))),
    {"type": "array", "items": SELF, "minItems": 1},
    {"type": "array", "prefixItems": [{}, SELF], "minItems": 2},
    {"type": ["object"], "properties": {"a": {"oneOf": [SELF, {"$ref": "#/properties/a"}]}}, "required": ["a"]},
    {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": holds({"$ref": "#/$defs/a"})}},
    {"$ref": "#/$defs/a%20b~1c~0d", "$defs": {"a b/c~d": holds({"$ref": "#/$defs/a%20b~1c~0d"})}},
]
ENDING: list[dict[str, Any]] = [
    {},
    {"type": "object", "properties": {"a": SELF}},
    {"properties": {"a": SELF}, "required": ["a"]},  # a number satisfies it
    {"type": ["object", "null"], "properties": {"a": SELF}, "required": ["a"]},
    {"anyOf": [SELF, {"type": "null"}]},
    holds({"anyOf": [SELF, {"type": "null"}]}),
    {"type": "array", "items": SELF},
    {"type": "array", "items": SELF, "minItems": 0},
    {"type": "array", "prefixItems": [{}], "items": SELF, "minItems": 1},
    {"type": "string", "$defs": {"a": holds({"$ref": "#/$defs/a"})}},  # nobody needs it
    {"$ref": "http://example.com/x"},
    {"$ref": "#/nowhere"},
]


@pytest.mark.parametrize("schema", ENDLESS, ids=str)
def test_what_has_no_end_is_found(schema: dict[str, Any]) -> None:
    assert find_endless(schema) in refs_of(schema)


@pytest.mark.parametrize("schema", ENDING, ids=str)
def test_what_has_an_end_is_let_pass(schema: dict[str, Any]) -> None:
    assert find_endless(schema) is None


def test_ten_thousand_definitions_in_a_row_take_no_time() -> None:
    count = 10_000
    chain: dict[str, Any] = {f"a{i}": holds({"$ref": f"#/$defs/a{i + 1}"}) for i in range(count)}
    start = time.perf_counter()
    assert find_endless({"$ref": "#/$defs/a0", "$defs": {**chain, f"a{count}": {}}}) is None
    assert find_endless({"$ref": "#/$defs/a0", "$defs": {**chain, f"a{count}": {"$ref": "#/$defs/a0"}}}) is not None
    assert time.perf_counter() - start < 10


def test_pointers() -> None:
    root = {"a": [{"b": 1}], "c/d": 2}
    assert resolve(root, "#/a/0/b") == 1
    assert resolve(root, "#/c~1d") == 2
    assert resolve(root, "#") is root
    assert [resolve(root, ref) for ref in ("#/a/1", "#/a/x", "#anchor", "other.json#/a", "#/a/0/b/c")] == [True] * 5
