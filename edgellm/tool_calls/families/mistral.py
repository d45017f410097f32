"""Mistral: `[TOOL_CALLS]` and an array of calls, or, since Mistral Small 3.2, `[TOOL_CALLS]name[ARGS]{...}` for each call.

Magistral, Ministral and Devstral write the second, some with `[CALL_ID]` and an id between. Ids of calls have exactly nine
letters or digits: the templates insist. Source: the chat templates, mistral-common's documentation of tool calls.
"""

from __future__ import annotations

import re

from ..calls import Calls
from ..reader import MalformedError, Reader, Steps
from .family import Family
from .json_call import read_calls

MARK, ID, ARGS = "[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"
_NAME = re.compile(r"[\w.-]", re.ASCII)


class Mistral(Family):
    """Calls after [TOOL_CALLS]. has_args: the model writes the newer form; both are read."""

    marks = (MARK,)
    controls = (MARK, ID, ARGS)
    id_prefix = ""

    def __init__(self, name: str, has_args: bool) -> None:
        self.name = name
        self._has_args = has_args
        self.head, self.tail, self.join = ("", "", "") if has_args else (f"{MARK}[", "]", ", ")

    def read(self, reader: Reader, calls: Calls) -> Steps[None]:
        """Read an array, or one call of the newer form."""
        yield from reader.need(MARK)
        yield from reader.skip_space()
        if (yield from reader.peek()) in ("[", "{"):
            yield from read_calls(reader, calls)
            return
        name = yield from reader.read_while(_NAME)
        if (yield from reader.take(ID)):
            yield from reader.read_while(_NAME)
        yield from reader.take(ARGS)
        yield from reader.skip_space()
        if (yield from reader.peek()) != "{":
            raise MalformedError
        calls.begin(name)
        yield from reader.read_value(calls.write)
        calls.end()
        reader.settle()

    def around(self, name: str) -> tuple[str, str]:
        """As the templates write it, without ids."""
        return (f"{MARK}{name}{ARGS}", "") if self._has_args else (f'{{"name": "{name}", "arguments": ', "}")


MISTRAL = Mistral("mistral", has_args=False)
MISTRAL_ARGS = Mistral("mistral-args", has_args=True)
