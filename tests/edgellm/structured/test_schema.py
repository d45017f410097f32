"""A schema in any of its shapes; what is wrong, huge, deep, circular or impossible is refused in one line and at once."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import pytest
from byte_constraints import accepts, make
from pydantic import BaseModel

from edgellm.errors import EdgeLLMError, OptionError, UnsupportedError
from edgellm.structured.schema import is_model, schema_text


class Point(BaseModel):
    x: int
    label: str | None = None


def test_the_same_schema_in_each_shape() -> None:
    as_dict = Point.model_json_schema()
    assert json.loads(schema_text(Point)) == {**as_dict, "additionalProperties": False}
    assert json.loads(schema_text(json.dumps(as_dict))) == json.loads(schema_text(as_dict)) == as_dict
    for schema in (Point, as_dict, json.dumps(as_dict)):
        assert accepts('{"x": 3, "label": null}', schema=schema)
        assert not accepts('{"label": null}', schema=schema)


def test_an_object_of_a_class_holds_what_the_class_has() -> None:
    class Open(BaseModel, extra="allow"):
        inner: Point
        more: dict[str, int]

    more = '{"x": 1, "label": null, "y": 2}'
    assert accepts(more, schema=Point.model_json_schema()) and not accepts(more, schema=Point)
    assert accepts('{"inner": {"x": 1}, "more": {"k": 1}, "y": 2}', schema=Open)
    assert not accepts('{"inner": {"x": 1, "y": 2}, "more": {}}', schema=Open)


def test_a_class_is_a_model_by_what_it_can() -> None:
    assert is_model(Point)
    assert not is_model(int) and not is_model(Point(x=1)) and not is_model({})


def test_true_is_any_json() -> None:
    for text in ('{"a": [1, null]}', "12", '"x"', "true"):
        assert accepts(text, schema=True) and accepts(text, schema={}) and accepts(text, schema="{}")
    assert not accepts("x", schema=True)


def circle() -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "array"}
    schema["items"] = schema
    return schema


def doubled() -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "null"}
    for _ in range(40):
        schema = {"anyOf": [schema, schema]}
    return schema


def chain(count: int) -> dict[str, Any]:
    refs = {f"a{i}": {"type": "array", "items": {"$ref": f"#/$defs/a{i + 1}"}} for i in range(count)}
    return {"$ref": "#/$defs/a0", "$defs": {**refs, f"a{count}": {"type": "null"}}}


def merged_twice(count: int) -> dict[str, Any]:
    """A few lines that a compiler which merges at every place goes through 2 ** count times."""

    def step(i: int) -> dict[str, Any]:
        ref = {"$ref": f"#/$defs/a{i + 1}"}
        return {"type": "object", "properties": {"x": {"allOf": [ref]}, "y": {**ref, "minProperties": 0}}}

    defs = {**{f"a{i}": step(i) for i in range(count)}, f"a{count}": {"type": "object"}}
    return {"$ref": "#/$defs/a0", "$defs": defs}


REFUSED: dict[str, tuple[Any, str]] = {
    "false": (False, "no answer satisfies"),
    "a list": ("[1]", "must be a JSON object, not list"),
    "no JSON": ("{", "not JSON"),
    "deep text": ('{"items":' * 50_000, "nested too deeply"),
    "deep text, closed": ('{"items":' * 101 + "{}" + "}" * 101, "nested too deeply"),
    "a circle": (circle(), "nested too deeply"),
    "doubling": (doubled(), "more than 100000 values"),
    "long": (" " * 1_000_001, "1000001 characters"),
    "a set": ({"enum": {1, 2}}, "JSON cannot"),
    "no number": ({"const": float("nan")}, "JSON cannot"),
    "half a character": ({"const": "\ud800"}, "JSON cannot"),
    "no end": ({"type": "array", "items": {"$ref": "#"}, "minItems": 1}, "no end: at #"),
    "a long chain": (chain(10_000), "levels of nesting"),
    "a contradiction": ({"type": "string", "minLength": 5, "maxLength": 2}, "minLength (5)"),
    "no such type": ({"type": "strin"}, "Invalid type: strin"),
    "too many members": ({"type": "object", "properties": {f"p{i}": {} for i in range(10_000)}}, "10000 properties"),
    "patterns": ({"patternProperties": {f"^a{i}$": {} for i in range(500)}}, "500 patternProperties"),
    "a divisor": ({"type": "integer", "multipleOf": 1_000_003}, "1000003 states"),
    "merged twice, 40 times": (merged_twice(40), "where $ref is merged"),
    "too large": ({"allOf": [{"type": "object", "properties": {f"p{i}": {}}} for i in range(500)]}, "too large"),
}
UNSUPPORTED: dict[str, dict[str, Any]] = {
    "oneOf": {"oneOf": [{"type": "string", "maxLength": 3}, {"type": "string", "pattern": "^a"}]},
    "not": {"not": {"type": "string"}},
    "if": {"if": {"type": "string"}, "then": {"minLength": 2}},
    "contains": {"type": "array", "contains": {"type": "integer"}},
    "uniqueItems": {"type": "array", "uniqueItems": True},
    "http://example.com/x": {"$ref": "http://example.com/x"},
    "regex": {"type": "string", "format": "regex"},
    "look-around": {"type": "string", "pattern": "(?=a)b"},
}


def refusal(schema: Any) -> EdgeLLMError:
    start = time.perf_counter()
    with pytest.raises(EdgeLLMError) as caught:
        make(schema=schema)
    assert time.perf_counter() - start < 10
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 500
    return caught.value


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_is_refused(name: str) -> None:
    schema, says = REFUSED[name]
    error = refusal(schema)
    assert isinstance(error, OptionError) and says in str(error)


@pytest.mark.parametrize("name", UNSUPPORTED)
@pytest.mark.parametrize("lenient", [False, True])
def test_what_cannot_be_kept_is_refused_by_name(name: str, lenient: bool) -> None:
    schema = UNSUPPORTED[name] | ({"x-guidance": {"lenient": True}} if lenient else {})
    error = refusal(schema)
    assert isinstance(error, UnsupportedError) and name in str(error)


def test_a_long_chain_within_the_limit_compiles_on_a_small_stack_of_the_caller() -> None:
    errors: list[BaseException] = []

    def run() -> None:
        try:
            assert (
                accepts("[[[[null]]]]", schema=chain(4)) and make(schema=chain(1600)) and make(schema=merged_twice(5))
            )
        except BaseException as error:
            errors.append(error)

    before = threading.stack_size(256 << 10)
    try:
        thread = threading.Thread(target=run)
        thread.start()
    finally:
        threading.stack_size(before)
    thread.join()
    assert not errors


def test_blanks_are_bounded_whatever_the_schema_says_of_them() -> None:
    wild = {"x-guidance": {"whitespace_pattern": "[ \\n]*", "item_separator": " *,"}, "type": "array"}
    assert accepts("[1,\n" + " " * 20 + "2]", schema=wild)
    for text in ("[1,\n\n2]", "[1," + " " * 21 + "2]", "[1 \n,2]", " [1,2]", "[1,2]\n"):
        assert not accepts(text, schema=wild), text
