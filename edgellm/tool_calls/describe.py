"""Tools for models whose template does not know any: they are told in words, and their calls and results become plain text.

The format is Hermes', which such models can follow by example. Knows messages and text only. Next hop: `turn.py`, which
decides who needs this.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from ..errors import TemplateError
from .request import ToolRequest

Message = Mapping[str, Any]

_CODE = re.compile(r"\{[{%].*?[%}]\}", re.DOTALL)
_COMMENT = re.compile(r"\{#.*?#\}", re.DOTALL)
_LITERAL = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"", re.DOTALL)
_TOOLS = re.compile(r"(?<![\w.])tools\b")


def knows_tools(source: str) -> bool:
    """Return whether a template uses the name `tools`, not only the word in a text."""
    return any(_TOOLS.search(code) for code in _CODE.findall(_LITERAL.sub("''", _COMMENT.sub("", source))))


def tell_of_tools(messages: Iterable[Message], request: ToolRequest) -> list[Message]:
    """Return messages without calls and tool results in them: as text, the tools themselves in the system message."""
    told = _write_out(messages)
    if not request.tools:
        return told
    text = _describe(request)
    if told and told[0].get("role") == "system":
        first = _text_of(told[0].get("content"))
        return [{**told[0], "content": f"{first}\n\n{text}" if first else text}, *told[1:]]
    return [{"role": "system", "content": text}, *told]


def _describe(request: ToolRequest) -> str:
    lines = [json.dumps(tool.description["function"], ensure_ascii=False) for tool in request.tools]
    return "\n".join(
        (
            "You can call functions. Each line between <tools> and </tools> describes one:",
            "<tools>",
            *lines,
            "</tools>",
            "To call a function, write its name and its arguments as JSON between <tool_call> and </tool_call>:",
            "<tool_call>",
            '{"name": "<name of the function>", "arguments": {<arguments>}}',
            "</tool_call>",
            "The result then comes between <tool_response> and </tool_response>. "
            + ("Call a function now." if request.is_required else "Call none if you can answer without."),
        )
    )


def _write_out(messages: Iterable[Message]) -> list[Message]:
    told: list[Message] = []
    is_after_result = False
    for number, message in enumerate(messages, 1):
        is_result = message.get("role") == "tool" if isinstance(message, Mapping) else False
        if is_result:
            text = f"<tool_response>\n{_text_of(message.get('content'))}\n</tool_response>"
            if is_after_result:
                text = f"{told.pop()['content']}\n{text}"
            told.append({"role": "user", "content": text})
        elif isinstance(message, Mapping) and message.get("tool_calls"):
            plain = {key: value for key, value in message.items() if key != "tool_calls"}
            calls = message["tool_calls"]
            if not isinstance(calls, (list, tuple)):
                raise TemplateError(f"message {number} must have a list as its tool_calls, not {calls!r:.80}")
            parts = [_text_of(message.get("content")), *(_write_call(call, number) for call in calls)]
            told.append({**plain, "content": "\n".join(part for part in parts if part)})
        else:
            told.append(message)
        is_after_result = is_result
    return told


def _write_call(call: Any, number: int) -> str:
    function = call.get("function", call) if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        raise TemplateError(f"message {number} has a tool call without a function: {call!r:.80}")
    arguments = function.get("arguments", {})
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False)
    name = json.dumps(function.get("name"), ensure_ascii=False)
    return f'<tool_call>\n{{"name": {name}, "arguments": {arguments}}}\n</tool_call>'


def _text_of(content: Any) -> str:
    """The text of a message's content: a text, OpenAI's parts, or nothing."""
    if isinstance(content, (list, tuple)):
        parts = [part.get("text") if isinstance(part, Mapping) else part for part in content]
        return "".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else ""
