"""Bare JSON: the answer is calls or an array of them, alone or in a fence, as Gemma 2 and 3 write them; in a fence also Python.

Also the way for templates that know tools and none of the marks of other families. JSON that is no call, by its keys or
by its name, is an answer like any other. Source: Google's guide to function calling with Gemma.
"""

from __future__ import annotations

from ..calls import Calls
from ..reader import Reader, Steps
from .family import Family
from .json_call import read_calls
from .pythonic import read_python

FENCES = ("```json", "```tool_code", "```tool_call")


class BareJson(Family):
    """JSON at the beginning of the answer, or in a fence anywhere."""

    name = "json"
    marks = FENCES
    starts = ("{", "[", "```")

    def read(self, reader: Reader, calls: Calls) -> Steps[None]:
        """Read the JSON, and a fence around it if there is one."""
        is_fenced = False
        for fence in (*FENCES, "```"):
            if not is_fenced:
                is_fenced = yield from reader.take(fence)
        yield from reader.skip_space()
        if is_fenced and (yield from reader.peek()) not in ("{", "["):
            yield from read_python(reader, calls, "```")
            return
        yield from read_calls(reader, calls)
        if is_fenced:
            yield from reader.take_last("```")

    def around(self, name: str) -> tuple[str, str]:
        """Without a fence."""
        return f'{{"name": "{name}", "parameters": ', "}"


BARE_JSON = BareJson()
