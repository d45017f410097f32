"""Describe a Python function as a tool: its name, docstring and type hints become OpenAI's shape with a JSON Schema.

Knows common hints only; what it does not know is an error that says so, never a guess. Next hop: `request.py`.
"""

from __future__ import annotations

import enum
import inspect
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..errors import OptionError

_PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}


def describe_function(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the tool of a function.

    The first paragraph of the docstring is the description; lines `name: text` under `Args:` describe parameters, and so
    does a text in Annotated. Parameters with a default are optional.
    Raises OptionError for a parameter without a type hint, with one that has no schema, and for *args and **kwargs.
    """
    name = getattr(function, "__name__", type(function).__name__)
    try:
        hints = typing.get_type_hints(function, include_extras=True)
        signature = inspect.signature(function)
    except (NameError, TypeError, ValueError) as error:
        raise OptionError(f"function {name} cannot be described: {error}; describe it as a dict") from None
    text = inspect.getdoc(function) or ""
    properties, required = {}, []
    for parameter in signature.parameters.values():
        where = f"parameter {parameter.name} of function {name}"
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise OptionError(f"{where} cannot be passed by name; give the function named parameters")
        if parameter.name not in hints:
            raise OptionError(f"{where} has no type hint; add one")
        schema = _get_schema(hints[parameter.name], where)
        said = re.search(rf"(?m)^\s+{re.escape(parameter.name)}\s*(?:\([^)]*\))?:\s*(.+)$", text)
        if said and "description" not in schema:
            schema["description"] = said[1].strip()
        properties[parameter.name] = schema
        if parameter.default is parameter.empty:
            required.append(parameter.name)
    parameters = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    first = " ".join(text.split("\n\n")[0].split())
    return {"type": "function", "function": {"name": name, "description": first, "parameters": parameters}}


def _get_schema(hint: Any, where: str) -> dict[str, Any]:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        texts = [text for text in arguments[1:] if isinstance(text, str)]
        return {**_get_schema(arguments[0], where), **({"description": texts[0]} if texts else {})}
    if isinstance(hint, type) and hint in _PLAIN:
        return {"type": _PLAIN[hint]}
    if hint is Any:
        return {}
    if origin is typing.Literal:
        return {"enum": list(arguments)}
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return {"enum": [member.value for member in hint]}
    if origin in (typing.Union, types.UnionType):
        return {"anyOf": [_get_schema(argument, where) for argument in arguments]}
    if hint in (list, tuple, set) or (isinstance(origin, type) and issubclass(origin, Sequence | set)):
        items = [argument for argument in arguments if argument is not Ellipsis]
        return {"type": "array", **({"items": _get_schema(items[0], where)} if len(items) == 1 else {})}
    if hint is dict or (isinstance(origin, type) and issubclass(origin, Mapping)):
        values = arguments[1:]
        return {"type": "object", **({"additionalProperties": _get_schema(values[0], where)} if values else {})}
    raise OptionError(f"{where} has a type hint without a JSON Schema, {hint!r:.80}; describe the function as a dict")
