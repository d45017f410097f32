"""Gemma 4: `<|tool_call>call:name{key:<|"|>text<|"|>,other:[1,true]}<tool_call|>`, JSON but for its quotes and bare keys.

JSON between the marks is read too. Source: the model's chat template.
"""

from __future__ import annotations

import json
import re
from typing import Any

from ..calls import Calls
from ..reader import MAX_DEPTH, MalformedError, Reader, Steps
from .arguments import Arguments
from .hermes import Marked

CALL, QUOTE = "call:", '<|"|>'
_NAME = re.compile(r"[\w.-]", re.ASCII)
_BARE = re.compile(r"[^\s,:{}\[\]]")


class Gemma4(Marked):
    """Gemma 4's own form between its marks."""

    def __init__(self) -> None:
        super().__init__("gemma4", "<|tool_call>", "<tool_call|>", False, ("name", "arguments"))
        self.controls = (*self.controls, QUOTE)

    def read(self, reader: Reader, calls: Calls) -> Steps[None]:
        """Read the mark, a call, and the closer."""
        yield from reader.need(self._mark)
        yield from reader.skip_space()
        if (yield from reader.take(CALL)):
            name = yield from reader.read_while(_NAME)
            arguments = Arguments(calls, name)
            yield from _read_members(reader, arguments.add, 1)
            arguments.end()
            reader.settle()
        else:
            yield from self._read_json(reader, calls)
        yield from reader.take_last(self._closer)


def _read_members(reader: Reader, add: Any, depth: int) -> Steps[None]:
    yield from reader.need("{")
    yield from reader.skip_space()
    if (yield from reader.take("}")):
        return
    while True:
        yield from reader.skip_space()
        is_quoted = yield from reader.take(QUOTE)
        key = yield from (reader.read_until(QUOTE) if is_quoted else reader.read_while(_BARE))
        yield from reader.skip_space()
        yield from reader.need(":")
        add(key, (yield from _read_value(reader, depth)))
        yield from reader.skip_space()
        if not (yield from reader.take(",")):
            break
    yield from reader.need("}")


def _read_value(reader: Reader, depth: int) -> Steps[Any]:
    if depth > MAX_DEPTH:
        raise MalformedError
    yield from reader.skip_space()
    if (yield from reader.take(QUOTE)):
        return (yield from reader.read_until(QUOTE))
    letter = yield from reader.peek()
    if letter == "{":
        mapping: dict[str, Any] = {}
        yield from _read_members(reader, mapping.__setitem__, depth + 1)
        return mapping
    if letter == "[":
        return (yield from _read_list(reader, depth))
    word = yield from reader.read_while(_BARE)
    try:
        return None if word == "None" else json.loads(word)
    except (ValueError, RecursionError):
        raise MalformedError from None


def _read_list(reader: Reader, depth: int) -> Steps[list[Any]]:
    values: list[Any] = []
    yield from reader.need("[")
    yield from reader.skip_space()
    if (yield from reader.take("]")):
        return values
    while True:
        values.append((yield from _read_value(reader, depth + 1)))
        yield from reader.skip_space()
        if not (yield from reader.take(",")):
            break
    yield from reader.need("]")
    return values


GEMMA4 = Gemma4()
