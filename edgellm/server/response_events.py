"""The events of a streamed /v1/responses, each with its type's name, numbered.

Source: OpenAI API reference, "Streaming events". Next hop: `response_items.py` has the items.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

from ..async_stream import AsyncStream
from ..completion import Completion
from ..tool_calls import CallDelta
from . import forms
from .answering import Pieces, Visit
from .problems import ApiError
from .response_items import call_item, message_item, reasoning_item, text_part

MakeResponse = Callable[..., dict[str, Any]]


class ResponseEvents(Pieces):
    """Server-sent events that carry their type twice, as OpenAI has them here."""

    media_type = "text/event-stream"

    @staticmethod
    def pack(data: dict[str, Any]) -> bytes:
        """See Pieces."""
        text = forms.compact(data)
        return f"event: {data['type']}\ndata: {text}\n\n".encode()

    @staticmethod
    def shape_of(error: ApiError) -> dict[str, Any]:
        """See Pieces."""
        return {"type": "error", "message": error.message, "code": error.code, "param": error.param}


class _Items:
    """The items of an answer as they grow. Each method gives the events of a change."""

    def __init__(self) -> None:
        self.done: list[dict[str, Any]] = []
        self._text: tuple[str, list[str]] | None = None
        self._reasoning: list[str] = []
        self._calls: dict[int, dict[str, Any]] = {}

    def say(self, text: str) -> list[dict[str, Any]]:
        """The message grows."""
        events = self.end_reasoning() + self.end_calls()
        at = {"output_index": len(self.done)}
        if self._text is None:
            self._text = forms.make_id("msg"), []
            item = message_item(self._text[0], "", "in_progress")
            events.append({"type": "response.output_item.added", **at, "item": item})
            part = {"content_index": 0, "item_id": self._text[0], "part": text_part("")}
            events.append({"type": "response.content_part.added", **at, **part})
        name, pieces = self._text
        pieces.append(text)
        delta = {"content_index": 0, "item_id": name, "delta": text, "logprobs": []}
        return [*events, {"type": "response.output_text.delta", **at, **delta}]

    def think(self, text: str) -> list[dict[str, Any]]:
        """Reasoning is given whole, when it has ended."""
        self._reasoning.append(text)
        return []

    def call(self, delta: CallDelta) -> list[dict[str, Any]]:
        """A call begins or its arguments grow."""
        events = self.end_reasoning() + self.end_text()
        if delta.index not in self._calls:
            events += self.end_calls()
            item = call_item(forms.make_id("fc"), delta.id or "", delta.name or "", "", "in_progress")
            self._calls[delta.index] = item
            events.append({"type": "response.output_item.added", "output_index": len(self.done), "item": dict(item)})
        if delta.arguments:
            item = self._calls[delta.index]
            item["arguments"] += delta.arguments
            more = {"item_id": item["id"], "output_index": len(self.done), "delta": delta.arguments}
            events.append({"type": "response.function_call_arguments.delta", **more})
        return events

    def end(self) -> list[dict[str, Any]]:
        """Nothing more comes."""
        return self.end_reasoning() + self.end_text() + self.end_calls()

    def end_reasoning(self) -> list[dict[str, Any]]:
        """It begins to answer."""
        if not self._reasoning:
            return []
        item = reasoning_item(forms.make_id("rs"), "".join(self._reasoning))
        self._reasoning = []
        at = {"output_index": len(self.done), "item": item}
        self.done.append(item)
        return [{"type": "response.output_item.added", **at}, {"type": "response.output_item.done", **at}]

    def end_text(self) -> list[dict[str, Any]]:
        """The message is whole."""
        if self._text is None:
            return []
        (name, pieces), self._text = self._text, None
        text, at = "".join(pieces), {"output_index": len(self.done)}
        inner = {**at, "content_index": 0, "item_id": name}
        item = message_item(name, text)
        self.done.append(item)
        return [
            {"type": "response.output_text.done", **inner, "text": text, "logprobs": []},
            {"type": "response.content_part.done", **inner, "part": text_part(text)},
            {"type": "response.output_item.done", **at, "item": item},
        ]

    def end_calls(self) -> list[dict[str, Any]]:
        """The call is whole."""
        events: list[dict[str, Any]] = []
        for item in self._calls.values():
            if item["status"] == "completed":
                continue
            item["status"], at = "completed", {"output_index": len(self.done)}
            more = {"item_id": item["id"], "arguments": item["arguments"]}
            events.append({"type": "response.function_call_arguments.done", **at, **more})
            events.append({"type": "response.output_item.done", **at, "item": item})
            self.done.append(item)
        return events


async def make_events(stream: AsyncStream, response: MakeResponse, visit: Visit) -> AsyncIterator[dict[str, Any]]:
    """Follow an answer. response: makes the response object of a status, output and completion."""
    items, number = _Items(), 0
    waiting: list[dict[str, Any]] = [
        {"type": f"response.{name}", "response": response("in_progress", [])} for name in ("created", "in_progress")
    ]
    async for delta in stream.deltas():
        if delta.content:
            waiting += items.say(delta.content)
        if delta.reasoning:
            waiting += items.think(delta.reasoning)
        for call in delta.tool_calls:
            waiting += items.call(call)
        for event in waiting:
            yield event | {"sequence_number": number}
            number += 1
        waiting = []
    done: Completion | None = stream.completion
    assert done is not None
    visit.done = [done]
    if not items.done and not done.text and not done.tool_calls:
        waiting += items.say("")
    waiting += items.end()
    last = response("completed", items.done, done)
    waiting.append({"type": f"response.{last['status']}", "response": last})
    for event in waiting:
        yield event | {"sequence_number": number}
        number += 1
