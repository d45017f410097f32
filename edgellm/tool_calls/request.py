"""What a request says about tools: which there are, whether one must be called, which. Checked here, before any work.

Knows OpenAI's shapes (its reference of chat completions) and no model. Next hops: `functions.py` makes a description of a
Python function, `turn.py` uses what is checked here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import OptionError
from .functions import describe_function

ToolLike = Mapping[str, Any] | Callable[..., Any]

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_CHOICES = "'auto', 'none', 'required' or {'type': 'function', 'function': {'name': ...}}"


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that may be called.

    description: OpenAI's, whole, for templates. parameters: the JSON Schema of its arguments. strict: arguments must keep to
    the schema; None where the request leaves it open.
    """

    name: str
    description: dict[str, Any]
    parameters: dict[str, Any]
    strict: bool | None


@dataclass(frozen=True, slots=True)
class ToolRequest:
    """tools: that may be called, none for no calls at all. is_required: one must be. is_parallel: several may be."""

    tools: tuple[Tool, ...] = ()
    is_required: bool = False
    is_parallel: bool = True


def check_request(
    tools: Iterable[ToolLike] | None, tool_choice: str | Mapping[str, Any] = "auto", parallel_tool_calls: bool = True
) -> ToolRequest:
    """Return what a request says, checked. Tools that the choice leaves out are left out. Raises OptionError."""
    if isinstance(tools, (str, bytes, Mapping)) or not isinstance(tools, Iterable | None):
        raise OptionError(f"tools must be a list of descriptions or functions, not {type(tools).__name__}")
    if not isinstance(parallel_tool_calls, bool):
        raise OptionError(f"parallel_tool_calls must be True or False, not {parallel_tool_calls!r:.80}")
    known = tuple(_check_tool(tool, number) for number, tool in enumerate(tools or (), 1))
    names = [tool.name for tool in known]
    for name in names:
        if names.count(name) > 1:
            raise OptionError(f"two tools are called {name!r}; each needs a name of its own")
    if isinstance(tool_choice, Mapping):
        wanted = _get_wanted(tool_choice)
        if wanted not in names:
            raise OptionError(
                f"tool_choice wants {wanted!r:.80}, which is not among the tools: {', '.join(names) or 'none'}"
            )
        return ToolRequest(tuple(tool for tool in known if tool.name == wanted), True, False)
    if tool_choice not in ("auto", "none", "required"):
        raise OptionError(f"tool_choice must be {_CHOICES}, not {tool_choice!r:.80}")
    if tool_choice == "required" and not known:
        raise OptionError("tool_choice 'required' needs tools, and there are none")
    return ToolRequest(() if tool_choice == "none" else known, tool_choice == "required", parallel_tool_calls)


def _get_wanted(choice: Mapping[str, Any]) -> str:
    function = choice.get("function")
    name = function.get("name") if isinstance(function, Mapping) else None
    if choice.get("type") != "function" or not isinstance(name, str):
        raise OptionError(f"tool_choice must be {_CHOICES}, not {dict(choice)!r:.80}")
    return name


def _check_tool(tool: ToolLike, number: int) -> Tool:
    if not isinstance(tool, Mapping):
        if not callable(tool):
            raise OptionError(f"tool {number} must be a description or a function, not {tool!r:.80}")
        tool = describe_function(tool)
    function = tool.get("function")
    if tool.get("type") != "function" or not isinstance(function, Mapping):
        raise OptionError(
            f"tool {number} must be {{'type': 'function', 'function': {{'name': ..., 'description': ..., "
            f"'parameters': ...}}}}, not {dict(tool)!r:.80}"
        )
    name = function.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise OptionError(
            f"the name of tool {number} must be 1 to 64 letters, digits, '_', '-' or '.', not {name!r:.80}"
        )
    if not isinstance(function.get("description", ""), str):
        raise OptionError(f"the description of tool {name} must be a text, not {function['description']!r:.80}")
    strict = function.get("strict")
    if strict is not None and not isinstance(strict, bool):
        raise OptionError(f"strict of tool {name} must be True or False, not {strict!r:.80}")
    parameters = _check_parameters(name, function.get("parameters"))
    shown = {"name": name, "description": "", **_plain(name, function), "parameters": parameters}
    return Tool(name, {**_plain(name, tool), "function": shown}, parameters, strict)


def _check_parameters(name: str, parameters: Any) -> dict[str, Any]:
    """Return a schema of an object that has `type` and `properties`, which templates look at without asking."""
    if parameters is None:
        parameters = {}
    if not isinstance(parameters, Mapping) or parameters.get("type", "object") != "object":
        raise OptionError(f"parameters of tool {name} must be a JSON Schema of type 'object', not {parameters!r:.80}")
    if not isinstance(parameters.get("properties", {}), Mapping):
        raise OptionError(f"properties of tool {name} must be an object, not {parameters['properties']!r:.80}")
    return {"type": "object", "properties": {}, **_plain(name, parameters)}


def _plain(name: str, value: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy in dicts and lists."""
    try:
        copy: dict[str, Any] = json.loads(json.dumps(value, allow_nan=False, default=_refuse))
    except (TypeError, ValueError, RecursionError) as error:
        raise OptionError(f"the description of tool {name} must be JSON: {error}") from None
    return copy


def _refuse(value: object) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{value!r:.60} is not")
