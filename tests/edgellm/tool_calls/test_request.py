"""What a request may say about tools: OpenAI's shapes and Python's functions; anything else is one clear line."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from types import MappingProxyType
from typing import Annotated, Any, Literal

import pytest

from edgellm.errors import OptionError
from edgellm.tool_calls.functions import describe_function
from edgellm.tool_calls.request import check_request

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


def tool(name: str = "f", **function: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, **function}}


def test_a_tool_as_openai_has_it() -> None:
    given = tool("get_weather", description="Now.", parameters=MappingProxyType(SCHEMA), strict=True)
    (made,) = check_request([given]).tools
    assert (made.name, made.parameters, made.strict) == ("get_weather", SCHEMA, True)
    assert made.description == tool("get_weather", description="Now.", parameters=SCHEMA, strict=True)
    assert check_request([made.description]).tools == (made,)


def test_what_is_left_out_is_filled_in_for_templates() -> None:
    (made,) = check_request([tool()]).tools
    empty = {"type": "object", "properties": {}}
    assert made.description == tool(description="", parameters=empty) and made.strict is None


def test_choices() -> None:
    tools = [tool("f"), tool("g")]
    assert check_request(None).tools == check_request([]).tools == check_request(tools, "none").tools == ()
    auto, required = check_request(iter(tools)), check_request(tools, "required", False)
    assert [t.name for t in auto.tools] == ["f", "g"] and not auto.is_required and auto.is_parallel
    assert [t.name for t in required.tools] == ["f", "g"] and required.is_required and not required.is_parallel
    named = check_request(tools, {"type": "function", "function": {"name": "g"}})
    assert [t.name for t in named.tools] == ["g"] and named.is_required and not named.is_parallel


@pytest.mark.parametrize(
    ("tools", "choice", "says"),
    [
        ({"type": "function"}, "auto", "tools must be a list of descriptions or functions, not dict"),
        (3, "auto", "not int"),
        ([3], "auto", "tool 1 must be a description or a function, not 3"),
        ([{"name": "f"}], "auto", "tool 1 must be {'type': 'function'"),
        ([tool(), {"type": "web_search"}], "auto", "tool 2 must be"),
        ([tool("a b")], "auto", "the name of tool 1 must be 1 to 64 letters.*'a b'"),
        ([tool("")], "auto", "the name of tool 1"),
        ([tool("x" * 65)], "auto", "the name of tool 1"),
        ([tool(), tool()], "auto", "two tools are called 'f'"),
        ([tool(description=3)], "auto", "the description of tool f must be a text, not 3"),
        ([tool(strict="yes")], "auto", "strict of tool f must be True or False"),
        ([tool(parameters=[])], "auto", "parameters of tool f must be a JSON Schema of type 'object'"),
        ([tool(parameters={"type": "string"})], "auto", "parameters of tool f must be a JSON Schema"),
        ([tool(parameters={"properties": []})], "auto", "properties of tool f must be an object"),
        ([tool(parameters={"x": {1, 2}})], "auto", "the description of tool f must be JSON"),
        ([tool(parameters={"x": float("nan")})], "auto", "the description of tool f must be JSON"),
        (None, "required", "needs tools, and there are none"),
        ([tool()], "any", "tool_choice must be 'auto', 'none', 'required'.*not 'any'"),
        (
            [tool()],
            {"type": "function", "function": {"name": "g"}},
            "tool_choice wants 'g', which is not among the tools: f",
        ),
        ([tool()], {"name": "f"}, "tool_choice must be"),
        ([tool()], None, "tool_choice must be"),
    ],
)
def test_mistakes_are_one_line(tools: Any, choice: Any, says: str) -> None:
    with pytest.raises(OptionError, match=says) as caught:
        check_request(tools, choice)
    assert "\n" not in str(caught.value)


def test_parallel_is_yes_or_no() -> None:
    with pytest.raises(OptionError, match="parallel_tool_calls must be True or False, not 1"):
        check_request([tool()], "auto", 1)  # type: ignore[arg-type]


class Unit(enum.Enum):
    CELSIUS = "C"
    FAHRENHEIT = "F"


def get_weather(
    city: str,
    unit: Unit = Unit.CELSIUS,
    days: Annotated[int, "how many"] = 1,
    kinds: Sequence[Literal["rain", "wind"]] | None = None,
    options: dict[str, float | bool] = {},  # noqa: B006
    rest: Any = None,
) -> str:
    """Look up the weather
    of a city.

    More about it.

    Args:
        city: name of the city
        unit (Unit): of temperatures
    """
    return city


def test_a_python_function_is_a_tool() -> None:
    assert describe_function(get_weather)["function"] == {
        "name": "get_weather",
        "description": "Look up the weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "name of the city"},
                "unit": {"enum": ["C", "F"], "description": "of temperatures"},
                "days": {"type": "integer", "description": "how many"},
                "kinds": {"anyOf": [{"type": "array", "items": {"enum": ["rain", "wind"]}}, {"type": "null"}]},
                "options": {
                    "type": "object",
                    "additionalProperties": {"anyOf": [{"type": "number"}, {"type": "boolean"}]},
                },
                "rest": {},
            },
            "required": ["city"],
            "additionalProperties": False,
        },
    }
    assert check_request([get_weather]).tools[0].name == "get_weather"


def unhinted(a, b: int):  # type: ignore[no-untyped-def]
    pass


def starred(*names: str) -> None:
    pass


def strange(a: complex) -> None:
    pass


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (unhinted, "parameter a of function unhinted has no type hint"),
        (starred, "parameter names of function starred cannot be passed by name"),
        (strange, "parameter a of function strange has a type hint without a JSON Schema"),
        (lambda x: x, "the name of tool 1|has no type hint"),
        (int, "cannot be described|cannot be passed by name|has no type hint"),
    ],
)
def test_functions_that_cannot_be_described(function: Any, says: str) -> None:
    with pytest.raises(OptionError, match=says):
        check_request([function])
