"""`POST /v1/responses`: OpenAI's newer interface to the same conversations. Nothing is stored: each request has all of it.

Next hop: `response_events.py` streams; `chat.py` has the older interface, whose ways of choosing are shared.
Source: OpenAI API reference, "Create a model response".
"""

from __future__ import annotations

import time
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ..async_llm import AsyncLLM
from ..async_stream import AsyncStream
from ..completion import Completion
from ..config import SamplingParams
from . import forms
from .answering import Desk, Visit
from .fields import Fields
from .problems import ApiError, bad
from .response_events import ResponseEvents, make_events
from .response_items import output_of
from .sampling import read_sampling
from .standing import read_standing

ROLES = {"developer": "system"}
TEXT_PARTS = ("input_text", "output_text", "text")


class ResponseRequest:
    """A request that is read and checked, and the response object as far as it is known before the answer."""

    def __init__(self, fields: Fields, name: str) -> None:
        for field in ("previous_response_id", "conversation"):
            if fields.get(field) is not None:
                raise ApiError(
                    400, f"{field} is not offered: nothing is stored here; send the whole input", param=field
                )
        self.messages = read_input(fields)
        self.is_stream = fields.flag("stream")
        given = dict(fields.values) | {"max_tokens": fields.get("max_output_tokens"), "max_completion_tokens": None}
        given["response_format"] = _form(fields)
        self.options = read_sampling(Fields(given))
        tools = _tools(fields)
        if tools:
            self.options["tools"] = tools
            self.options["tool_choice"] = _choice(fields.get("tool_choice"))
            self.options["parallel_tool_calls"] = fields.flag("parallel_tool_calls", True)
        self.head: dict[str, Any] = {
            "id": forms.make_id("resp"),
            "object": "response",
            "created_at": int(time.time()),
            "model": name,
            "instructions": fields.get("instructions"),
            "metadata": fields.object("metadata") or {},
            "parallel_tool_calls": fields.flag("parallel_tool_calls", True),
            "temperature": self.options.get("temperature", SamplingParams().temperature),
            "top_p": self.options.get("top_p", SamplingParams().top_p),
            "max_output_tokens": self.options.get("max_tokens"),
            "tools": fields.objects("tools") or [],
            "tool_choice": fields.get("tool_choice") or "auto",
            "error": None,
            "incomplete_details": None,
            "previous_response_id": None,
        }

    def begin(self, llm: AsyncLLM) -> AsyncStream:
        """Set the model to work."""
        return llm.chat_stream(self.messages, **self.options)

    def response(self, status: str, output: list[dict[str, Any]], done: Completion | None = None) -> dict[str, Any]:
        """The response object."""
        found = self.head | {"status": status, "output": output, "usage": None}
        if done is not None:
            counts = forms.usage([done])
            found["usage"] = {
                "input_tokens": counts["prompt_tokens"],
                "input_tokens_details": counts["prompt_tokens_details"],
                "output_tokens": counts["completion_tokens"],
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": counts["total_tokens"],
            }
            if done.finish_reason == "length":
                found |= {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
        return found


def read_input(fields: Fields) -> list[dict[str, Any]]:
    """The conversation as chat messages, instructions first."""
    messages: list[dict[str, Any]] = []
    if instructions := fields.text("instructions"):
        messages.append({"role": "system", "content": instructions})
    value = fields.get("input")
    if isinstance(value, str):
        return [*messages, {"role": "user", "content": value}]
    if not isinstance(value, list) or not value or not all(isinstance(item, dict) for item in value):
        raise bad("input", value, "a text or a list of at least one item")
    for item in value:
        _add_item(messages, item)
    return messages


def _add_item(messages: list[dict[str, Any]], item: dict[str, Any]) -> None:
    kind = item.get("type", "message")
    if kind == "message":
        role = item.get("role")
        if not isinstance(role, str):
            raise bad("input", item, "items whose role is a text")
        messages.append({"role": ROLES.get(role, role), "content": _content(item.get("content"))})
    elif kind == "function_call":
        call = {"id": item.get("call_id"), "type": "function"}
        call["function"] = {"name": item.get("name"), "arguments": item.get("arguments")}
        if messages and messages[-1].get("tool_calls"):
            messages[-1]["tool_calls"].append(call)
        else:
            messages.append({"role": "assistant", "content": "", "tool_calls": [call]})
    elif kind == "function_call_output":
        messages.append({"role": "tool", "tool_call_id": item.get("call_id"), "content": _content(item.get("output"))})
    elif kind != "reasoning":  # what it thought before is not shown to it again
        raise bad("input", kind, "items of the type message, function_call, function_call_output or reasoning")


def _content(content: Any) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise bad("input", content, "items whose content is a text or a list of parts")
    texts = []
    for part in content:
        text = part.get("text") if isinstance(part, dict) and part.get("type") in TEXT_PARTS else None
        if not isinstance(text, str):
            raise bad("input", part, "parts of text; this server reads no images, sounds or files")
        texts.append(text)
    return "".join(texts)


def _form(fields: Fields) -> dict[str, Any] | None:
    """response_format, from text.format."""
    form = (fields.object("text") or {}).get("format")
    if not isinstance(form, dict):
        return None
    if form.get("type") == "json_schema":
        return {"type": "json_schema", "json_schema": {key: value for key, value in form.items() if key != "type"}}
    return form


def _tools(fields: Fields) -> list[dict[str, Any]]:
    tools = []
    for tool in fields.objects("tools") or []:
        if tool.get("type") != "function":
            raise bad("tools", tool.get("type"), "functions; this server has no tools of its own")
        tools.append({"type": "function", "function": {k: v for k, v in tool.items() if k not in ("type", "strict")}})
    return tools


def _choice(choice: Any) -> Any:
    if isinstance(choice, dict) and "name" in choice:
        return {"type": "function", "function": {"name": choice["name"]}}
    return choice if choice is not None else "auto"


async def responses(request: Request) -> Response:
    """Answer a conversation."""
    desk: Desk = request.app.state.desk
    fields = await desk.read(request)
    model = desk.models.find(fields.text("model"))
    asked = ResponseRequest(fields, model.name)
    asked.options |= read_standing(request, fields)
    async with Visit(desk, request) as visit:
        llm = await visit.open(model.name)
        (stream,) = await visit.begin([asked.begin(llm)])
        if asked.is_stream:
            return ResponseEvents(make_events(stream, asked.response, visit), visit)
        (done,) = await visit.finish([stream])
        return JSONResponse(asked.response("completed", output_of(done), done))
