"""Arguments as tags: `<function=name><parameter=key>value</parameter></function>`, and GLM's `name<arg_key>..<arg_value>..`.

Qwen 3 Coder, Qwen 3.5, Nemotron 3 and Step 3.5 write the first, Seed-OSS too between tags of its own; GLM 4.5 to 4.7, Laguna
and Ling write the second. Both stand between Hermes' tags, and JSON there is read as well. A value is text; it becomes JSON by
the function's schema. Source: the models' chat templates.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from ..calls import Calls
from ..reader import MalformedError, Reader, Steps
from .arguments import Arguments
from .hermes import Marked

FUNCTION, PARAMETER, KEY = "<function=", "<parameter=", "<arg_key>"
_NAME = re.compile(r"[\w.-]", re.ASCII)
_NO_BRACKET = re.compile(r"[^<>]")


class Tagged(Marked):
    """Tags between a mark and its closer. is_bare: the function's tag also comes without the mark."""

    def __init__(self, name: str, mark: str, closer: str, is_bare: bool) -> None:
        super().__init__(name, mark, closer, False, ("name", "arguments"))
        if is_bare:
            self.marks = (mark, FUNCTION)

    def read(self, reader: Reader, calls: Calls) -> Steps[None]:
        """Read the mark, tags or JSON, and the closer."""
        yield from reader.take(self._mark)
        yield from reader.skip_space()
        letter = yield from reader.peek()
        if letter in ("{", "["):
            yield from self._read_json(reader, calls)
        elif letter == "<":
            yield from _read_function(reader, calls)
        else:
            yield from _read_pairs(reader, calls)
        yield from reader.take_last(self._closer)


def _read_function(reader: Reader, calls: Calls) -> Steps[None]:
    yield from reader.need(FUNCTION)
    name = yield from reader.read_while(_NAME)
    yield from reader.need(">")
    arguments = Arguments(calls, name)
    yield from reader.skip_space()
    while (yield from reader.take(PARAMETER)):
        key = yield from reader.read_while(_NO_BRACKET)
        yield from reader.need(">")
        value = yield from reader.read_until("</parameter>")
        arguments.add(key, _by_schema(value.removeprefix("\n").removesuffix("\n"), arguments.schema_of(key)))
        yield from reader.skip_space()
    yield from reader.need("</function>")
    arguments.end()
    reader.settle()


def _read_pairs(reader: Reader, calls: Calls) -> Steps[None]:
    name = yield from reader.read_while(_NAME)
    if not name:
        raise MalformedError
    arguments: Arguments | None = None
    yield from reader.skip_space()
    while (yield from reader.take(KEY)):
        arguments = arguments or Arguments(calls, name)
        key = yield from reader.read_until("</arg_key>")
        yield from reader.skip_space()
        yield from reader.need("<arg_value>")
        value = yield from reader.read_until("</arg_value>")
        arguments.add(key.strip(), _by_schema(value, arguments.schema_of(key.strip())))
        yield from reader.skip_space()
    yield from reader.need("</tool_call>")
    (arguments or Arguments(calls, name)).end()
    reader.settle()


def _by_schema(text: str, schema: Mapping[str, Any]) -> Any:
    """Return what a text stands for: itself where the schema wants a text, what it says as JSON elsewhere."""
    kind = schema.get("type")
    kinds = kind if isinstance(kind, list) else [kind]
    if kind == "string":
        return text
    try:
        value = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return {"True": True, "False": False, "None": None}.get(text, text)
    # A text that looks like a number stays a text where texts and no numbers are wanted.
    return text if "string" in kinds and not isinstance(value, str | type(None)) else value


def _refuse(name: str) -> Any:
    raise ValueError(name)


TAGGED = Tagged("tagged", "<tool_call>", "</tool_call>", is_bare=True)
SEED = Tagged("seed", "<seed:tool_call>", "</seed:tool_call>", is_bare=True)
GLM = Tagged("glm", "<tool_call>", "</tool_call>", is_bare=False)
