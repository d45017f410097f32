"""The items that an answer of /v1/responses is made of. Knows completions, no HTTP. Next hop: `responses.py`."""

from __future__ import annotations

from typing import Any

from ..completion import Completion
from . import forms


def output_of(done: Completion) -> list[dict[str, Any]]:
    """The items of an answer: reasoning, a message, calls."""
    items: list[dict[str, Any]] = []
    if done.reasoning:
        items.append(reasoning_item(forms.make_id("rs"), done.reasoning))
    if done.text or not done.tool_calls:
        items.append(message_item(forms.make_id("msg"), done.text))
    for call in done.tool_calls:
        items.append(call_item(forms.make_id("fc"), call.id, call.name, call.arguments))
    return items


def message_item(name: str, text: str, status: str = "completed") -> dict[str, Any]:
    """A message of the assistant."""
    parts = [text_part(text)] if text or status == "completed" else []
    return {"id": name, "type": "message", "role": "assistant", "status": status, "content": parts}


def text_part(text: str) -> dict[str, Any]:
    """A part of a message."""
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def reasoning_item(name: str, text: str) -> dict[str, Any]:
    """What it thought."""
    return {"id": name, "type": "reasoning", "summary": [{"type": "summary_text", "text": text}]}


def call_item(name: str, call_id: str, function: str, arguments: str, status: str = "completed") -> dict[str, Any]:
    """A function it wants called."""
    item = {"id": name, "type": "function_call", "call_id": call_id, "name": function}
    return item | {"arguments": arguments, "status": status}
