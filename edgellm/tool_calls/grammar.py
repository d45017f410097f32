"""A grammar of calls: which functions, in the family's words, with arguments by each function's JSON Schema.

In Lark's language with llguidance's extensions (its docs/syntax.md): %json, ids of control tokens, lazy rules. Knows
families and schemas, no tokens but the control tokens it is told. Next hop: `structured`, which compiles it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from ..errors import OptionError
from ..structured.schema import schema_text
from .families import Family
from .request import Tool, ToolRequest

# JSON as templates write it: no white space for a model to get lost in, and the same text when it is rendered again.
_STYLE = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


def make_grammar(family: Family, request: ToolRequest, max_calls: int, controls: Mapping[str, int]) -> str | None:
    """Return the grammar of an answer, None where it is free.

    A required call is kept to its schema unless the tool says strict: false; a voluntary one if it says strict: true.
    max_calls: in one answer. controls: ids of the family's texts that are control tokens.
    """
    if not request.is_required and not any(tool.strict for tool in request.tools):
        return None
    writer = _Writer(family, request, controls)
    return "\n".join(("%llguidance {}", *writer.start(), *writer.calls(max_calls - 1), *writer.arguments()))


class _Writer:
    def __init__(self, family: Family, request: ToolRequest, controls: Mapping[str, int]) -> None:
        self._family, self._request, self._controls = family, request, controls
        marks = sorted(controls, key=len, reverse=True)
        self._split = re.compile("|".join(map(re.escape, marks))) if marks else None
        # The text that shows that calls begin, where text may stand before it.
        first = family.head + family.around(request.tools[0].name)[0]
        marked = [mark for mark in family.marks if first.startswith(mark)]
        self._lead = marked[0] if marked and not request.is_required else ""

    def start(self) -> list[str]:
        """Rules of what an answer may be."""
        if self._request.is_required:
            return ["start: calls"]
        if self._lead in self._controls:
            return ["start: TEXT? | TEXT? lead calls", f"lead: <[{self._controls[self._lead]}]>", "TEXT: /(.|\\n)+/"]
        if self._lead:
            return ["start: TEXT | lead calls", f"lead[lazy]: TEXT {_quote(self._lead)}", "TEXT: /(.|\\n)*/"]
        # The answer is a call, or does not begin as one.
        first = "".join(sorted({re.escape(start[0]) for start in self._family.starts}))
        text = f"/[ \\n]*[^{first} \\n](.|\\n)*/"
        spelled = [re.escape(mark) for mark in self._family.marks if mark not in self._controls]
        if spelled:
            text += f" & ~/(.|\\n)*({'|'.join(spelled).replace('/', chr(92) + '/')})(.|\\n)*/"
        return ["start: TEXT? | calls", f"TEXT: {text}"]

    def calls(self, repeats: int) -> list[str]:
        """Rules of the calls: the first, whose lead has been written, and the others."""
        family, tools = self._family, self._request.tools
        more = f" ({self._text(family.join)} call){{0,{repeats}}}" if repeats else ""
        rules = [f"calls: {self._text(family.head, self._lead)} first{more} {self._text(family.tail)}"]
        for rule, lead in (("first", "" if family.head else self._lead), ("call", ""))[: 2 if repeats else 1]:
            rules.append(f"{rule}: " + " | ".join(f"{rule}_{i}" for i in range(len(tools))))
            for i, tool in enumerate(tools):
                before, after = family.around(tool.name)
                rules.append(f"{rule}_{i}: {self._text(before, lead)} arguments_{i} {self._text(after)}")
        return rules

    def arguments(self) -> list[str]:
        """Rules of each function's arguments."""
        return [f"arguments_{i}: %json {self._schema(tool)}" for i, tool in enumerate(self._request.tools)]

    def _schema(self, tool: Tool) -> str:
        is_kept = tool.strict is not False if self._request.is_required else bool(tool.strict)
        if not is_kept:
            return json.dumps({"type": "object", "x-guidance": _STYLE})
        try:
            text = schema_text({**tool.parameters, "x-guidance": _STYLE})
        except OptionError as error:
            raise OptionError(f"parameters of tool {tool.name}: {error}") from None
        return text

    def _text(self, text: str, lead: str = "") -> str:
        """A text without its lead: literals, and control tokens by their ids."""
        text = text.removeprefix(lead)
        parts, done = [], 0
        for found in self._split.finditer(text) if self._split else ():
            parts += [_quote(text[done : found.start()]), f"<[{self._controls[found[0]]}]>"]
            done = found.end()
        return " ".join(part for part in (*parts, _quote(text[done:])) if part)


def _quote(text: str) -> str:
    return json.dumps(text) if text else ""
