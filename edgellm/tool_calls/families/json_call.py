"""A call as a JSON object: a name and arguments, under the words that different families use for them.

Knows nothing of what stands around the object. Next hop: the families beside this file.
"""

from __future__ import annotations

import json

from ..calls import Calls, load_object
from ..reader import MalformedError, Reader, Steps

_NAME_KEYS = ("name", "tool_name")
_ARGUMENTS_KEYS = ("arguments", "parameters")
_OTHER_KEYS = ("type", "id", "tool_call_id", "call_id")


def read_call(reader: Reader, calls: Calls) -> Steps[None]:
    """Read {"name": ..., "arguments": {...}}, in any order; `parameters` will do, and OpenAI's own nesting too.

    Where the name comes first, the arguments are handed on while they are written. Arguments written as a JSON text, and
    none at all, are understood. Any other key means that this is not a call, but JSON that the user asked for.
    """
    yield from _read_fields(reader, calls)
    calls.end()
    reader.settle()


def read_calls(reader: Reader, calls: Calls) -> Steps[None]:
    """Read a JSON array of calls, or calls one after another."""
    if not (yield from reader.take("[")):
        while True:
            yield from read_call(reader, calls)
            end = reader.at
            yield from reader.skip_space()
            if (yield from reader.peek()) != "{":
                reader.at = end
                return
    while True:
        yield from reader.skip_space()
        yield from read_call(reader, calls)
        yield from reader.skip_space()
        if not (yield from reader.take(",")):
            break
    yield from reader.need("]")
    reader.settle()


def _read_fields(reader: Reader, calls: Calls) -> Steps[None]:
    """Read the object. On return the call is announced and its arguments are written."""
    name: str | None = None
    written: str | None = None  # arguments that came before the name, or not as an object
    is_begun = False
    yield from reader.need("{")
    while True:
        yield from reader.skip_space()
        key = json.loads((yield from reader.read_string()))
        yield from reader.skip_space()
        yield from reader.need(":")
        yield from reader.skip_space()
        letter = yield from reader.peek()
        if key == "function" and letter == "{" and not is_begun:
            yield from _read_fields(reader, calls)
            is_begun = True
        elif (key in _NAME_KEYS or key == "function") and letter == '"' and name is None:
            name = json.loads((yield from reader.read_string()))
        elif key in _ARGUMENTS_KEYS and letter == "{" and name is not None and not is_begun:
            calls.begin(name)
            is_begun = True
            yield from reader.read_value(calls.write)
        elif key in _ARGUMENTS_KEYS and written is None and not is_begun:
            written = yield from _read_held(reader)
        elif key in _OTHER_KEYS:
            yield from _read_held(reader)
        else:
            raise MalformedError
        yield from reader.skip_space()
        if not (yield from reader.take(",")):
            break
    yield from reader.need("}")
    if not is_begun:
        _begin_late(calls, name, written)


def _read_held(reader: Reader) -> Steps[str]:
    pieces: list[str] = []
    yield from reader.read_value(pieces.append)
    return "".join(pieces)


def _begin_late(calls: Calls, name: str | None, written: str | None) -> None:
    if name is None:
        raise MalformedError
    if written is None or written == "null":
        written = "{}"
    elif written.startswith('"'):
        written = json.loads(written)
    load_object(written)  # before anything is announced
    calls.begin(name)
    calls.write(written)
