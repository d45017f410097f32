"""Ollama's routes that answer, so that front-ends made for it work: /api/chat, /api/generate.

Answers are lines of JSON, streamed unless that is switched off. Durations are in nanoseconds. Source: Ollama's docs/api.md.
Next hops: `ollama_models.py` and `ollama_embeddings.py` for its other routes; `forms.py` for OpenAI's shapes of the same.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ..async_llm import AsyncLLM
from ..async_stream import AsyncStream
from ..completion import Completion
from ..sampling import TokenLogprobs
from . import forms
from .answering import Desk, Lines, Visit
from .chat import MAX_TOP_LOGPROBS
from .fields import Fields
from .ollama_models import now, plain_name
from .problems import ApiError, bad
from .sampling import read_sampling
from .standing import read_standing

RENAMED = {"num_predict": "max_tokens"}


def read_options(fields: Fields) -> dict[str, Any]:
    """The fields of SamplingParams: Ollama's `options` have llama.cpp's names, `format` is "json" or a schema."""
    if fields.get("images"):
        raise ApiError(400, "images are not offered: this server reads text only", param="images")
    given = fields.object("options") or {}
    options = {RENAMED.get(name, name): value for name, value in given.items()}
    if options.get("max_tokens") in (-1, -2):  # without an end; to the end of the context
        options["max_tokens"] = None
    found = read_sampling(Fields(options))
    form = fields.get("format")
    if form == "json":
        found["json"] = True
    elif isinstance(form, dict):
        found["schema"] = form
    elif form not in (None, ""):
        raise bad("format", form, '"json" or a JSON Schema')
    top = fields.whole("top_logprobs", 0, MAX_TOP_LOGPROBS)
    if fields.flag("logprobs"):
        found["logprobs"] = top or 0
    return found


def _durations(done: Completion) -> dict[str, Any]:
    t = done.timings
    decode_s = t.decode_tokens / t.decode_tps if t.decode_tps else 0.0
    computed = t.prefill_tokens - t.reused_tokens
    return {
        "total_duration": int((t.ttft_s + decode_s) * 1e9),
        "load_duration": 0,
        "prompt_eval_count": t.prefill_tokens,
        "prompt_eval_duration": int((computed / t.prefill_tps if t.prefill_tps else 0.0) * 1e9),
        "eval_count": len(done.token_ids),
        "eval_duration": int(decode_s * 1e9),
    }


def _end(done: Completion) -> dict[str, Any]:
    reason = "length" if done.finish_reason == "length" else "stop"
    return {"done": True, "done_reason": reason, **_durations(done)}


def _message(content: str, reasoning: str, calls: Any) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if reasoning:
        message["thinking"] = reasoning
    if calls:
        message["tool_calls"] = [{"function": {"name": call.name, "arguments": call.parsed}} for call in calls]
    return message


async def chat(request: Request) -> Response:
    """Answer a conversation."""
    desk: Desk = request.app.state.desk
    fields = await desk.read(request)
    messages = fields.objects("messages") or []
    options = read_options(fields) | read_standing(request, fields)
    if tools := fields.objects("tools"):
        options["tools"] = tools
    if (think := fields.get("think")) is not None:
        options["template_args"] = {"enable_thinking": bool(think)}

    def begin(llm: AsyncLLM) -> AsyncStream:
        return llm.chat_stream([_openai_message(message) for message in messages], **options)

    def whole(done: Completion) -> dict[str, Any]:
        return {"message": _message(done.text, done.reasoning, done.tool_calls)}

    async def pieces(stream: AsyncStream) -> AsyncIterator[dict[str, Any]]:
        async for delta in stream.deltas():
            if delta.content or delta.reasoning:
                yield {"message": _message(delta.content, delta.reasoning, ())}
        done = stream.completion
        if done is not None and done.tool_calls:  # its clients read a call whole
            yield {"message": _message("", "", done.tool_calls)}

    last = {"message": {"role": "assistant", "content": ""}}
    return await _answer(request, desk, fields, begin if messages else None, whole, pieces, last)


async def generate(request: Request) -> Response:
    """Answer one text, through the chat template unless `raw`."""
    desk: Desk = request.app.state.desk
    fields = await desk.read(request)
    prompt, system = fields.text("prompt") or "", fields.text("system")
    options, is_raw = read_options(fields) | read_standing(request, fields), fields.flag("raw")
    if fields.text("suffix"):
        raise bad("suffix", fields.get("suffix"), "left out: filling in the middle is not offered")
    messages = [{"role": "system", "content": system}] if system else []
    messages.append({"role": "user", "content": prompt})

    def begin(llm: AsyncLLM) -> AsyncStream:
        if is_raw or llm.llm.loaded.template is None:
            return llm.stream(prompt, **options)
        return llm.chat_stream(messages, **options)

    async def pieces(stream: AsyncStream) -> AsyncIterator[dict[str, Any]]:
        async for piece in stream:
            yield {"response": piece}

    whole = lambda done: {"response": done.text}  # noqa: E731
    return await _answer(request, desk, fields, begin if prompt else None, whole, pieces, {"response": ""})


async def _answer(
    request: Request, desk: Desk, fields: Fields, begin: Any, whole: Any, pieces: Any, last: dict[str, Any]
) -> Response:
    """begin: starts the answer, None if the model is only to be loaded. whole, pieces: shapes of the answer; last: of its end."""
    name = desk.models.find(plain_name(fields.text("model"))).name
    head = {"model": fields.text("model") or name}
    async with Visit(desk, request) as visit:
        llm = await visit.open(name)
        if begin is None:
            visit.done = []
            return JSONResponse(head | {"created_at": now(), **last, "done": True, "done_reason": "load"})
        (stream,) = await visit.begin([begin(llm)])
        if fields.flag("stream", True):
            return Lines(_lines(head, stream, pieces(stream), last, visit, llm), visit)
        (done,) = await visit.finish([stream])
        thought = _logprobs(done.logprobs, llm)
        return JSONResponse(head | {"created_at": now(), **whole(done), **thought, **_end(done)})


async def _lines(
    head: dict[str, Any],
    stream: AsyncStream,
    pieces: AsyncIterator[dict[str, Any]],
    last: dict[str, Any],
    visit: Visit,
    llm: AsyncLLM,
) -> AsyncIterator[dict[str, Any]]:
    told = 0
    async for piece in pieces:
        new = (stream.logprobs or [])[told:]
        told += len(new)
        yield head | {"created_at": now(), **piece, **_logprobs(new, llm), "done": False}
    assert stream.completion is not None
    visit.done = [stream.completion]
    thought = _logprobs((stream.completion.logprobs or [])[told:], llm)
    yield head | {"created_at": now(), **last, **thought, **_end(stream.completion)}


def _logprobs(found: Sequence[TokenLogprobs] | None, llm: AsyncLLM) -> dict[str, Any]:
    return {"logprobs": [forms.chat_logprob(one, llm.llm.tokenizer) for one in found]} if found else {}


def _openai_message(message: dict[str, Any]) -> dict[str, Any]:
    """Ollama has a call's arguments as an object, OpenAI as text."""
    if message.get("images"):
        raise ApiError(400, "images are not offered: this server reads text only", param="messages")
    calls = message.get("tool_calls")
    if not isinstance(calls, list):
        return message
    turned = []
    for i, call in enumerate(calls):
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict):
            raise bad("messages", call, "messages whose tool_calls have a function each")
        arguments = function.get("arguments", {})
        text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        turned.append({"id": f"call_{i}", "type": "function", "function": {**function, "arguments": text}})
    return {**message, "tool_calls": turned}
