"""`POST /v1/chat/completions`. Next hops: `sampling.py` reads how to choose, `forms.py` has the answers' shapes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ..async_llm import AsyncLLM
from ..async_stream import AsyncStream
from ..completion import Completion
from ..request import seeds
from ..stream import PromptProgress
from . import forms
from .answering import Desk, Events, Visit
from .fields import Fields
from .problems import ApiError, bad
from .reading import after_reading
from .sampling import read_answers, read_sampling
from .side_by_side import side_by_side
from .standing import read_standing

MAX_TOP_LOGPROBS = 20


class ChatRequest:
    """A request that is read and checked. options: of LLM.chat_stream."""

    def __init__(self, fields: Fields, desk: Desk) -> None:
        messages = fields.objects("messages")
        if not messages:
            raise bad("messages", fields.get("messages"), "a list of at least one message")
        self.messages = messages
        self.model = fields.text("model")
        self.n = read_answers(fields, desk.settings.max_answers)
        self.is_stream = fields.flag("stream")
        self.wants_progress = fields.flag("return_progress")
        self.wants_usage = self.is_stream and bool((fields.object("stream_options") or {}).get("include_usage"))
        self.options = read_sampling(fields) | self._logprobs(fields) | self._tools(fields)
        self.seeds = seeds(self.options.pop("seed", None), self.n)

    @staticmethod
    def _logprobs(fields: Fields) -> dict[str, Any]:
        top = fields.whole("top_logprobs", 0, MAX_TOP_LOGPROBS)
        if not fields.flag("logprobs"):
            if top:
                raise ApiError(400, "top_logprobs needs logprobs to be true", param="top_logprobs")
            return {}
        return {"logprobs": top or 0}

    @staticmethod
    def _tools(fields: Fields) -> dict[str, Any]:
        found: dict[str, Any] = {"parallel_tool_calls": fields.flag("parallel_tool_calls", True)}
        if tools := fields.objects("tools"):
            found["tools"] = tools
            if (choice := fields.get("tool_choice")) is not None:
                found["tool_choice"] = choice
        if (args := fields.object("chat_template_kwargs")) is not None:
            found["template_args"] = args
        return found

    def begin(self, llm: AsyncLLM) -> list[AsyncStream]:
        """One answer for each seed; all but the first find the prompt in the cache."""
        return [llm.chat_stream(self.messages, seed=seed, **self.options) for seed in self.seeds]


async def chat(request: Request) -> Response:
    """Answer a conversation."""
    desk: Desk = request.app.state.desk
    fields = await desk.read(request)
    asked = ChatRequest(fields, desk)
    asked.options |= read_standing(request, fields)
    name = desk.models.find(asked.model).name  # a wrong one is told before anything waits
    async with Visit(desk, request) as visit:
        llm = await visit.open(asked.model)
        streams = await visit.begin(asked.begin(llm))
        if asked.is_stream:
            head = forms.head("chatcmpl", "chat.completion.chunk", name)
            return Events(_events(asked, head, llm, streams, visit), visit)
        return JSONResponse(_answer(name, llm, await visit.finish(streams)))


def _answer(name: str, llm: AsyncLLM, done: list[Completion]) -> dict[str, Any]:
    choices = []
    for index, one in enumerate(done):
        choice = {"index": index, "message": forms.message(one), "finish_reason": forms.finish_reason(one)}
        logprobs = None if one.logprobs is None else forms.chat_logprobs(one.logprobs, llm.llm.tokenizer)
        choices.append(choice | {"logprobs": logprobs})
    head = forms.head("chatcmpl", "chat.completion", name)
    return head | {"choices": choices, "usage": forms.usage(done), "timings": forms.timings(done[0].timings)}


async def _events(
    asked: ChatRequest, head: dict[str, Any], llm: AsyncLLM, streams: list[AsyncStream], visit: Visit
) -> AsyncIterator[dict[str, Any]]:
    """The chunks of a streamed answer."""
    if asked.wants_usage:
        head["usage"] = None

    def chunk(index: int, delta: dict[str, Any], **more: Any) -> dict[str, Any]:
        choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": None, **more}
        return head | {"choices": [choice]}

    for index in range(asked.n):
        yield chunk(index, {"role": "assistant", "content": ""})
    told = [0] * asked.n
    sources = [after_reading(stream, stream.deltas(), asked.wants_progress) for stream in streams]
    async for index, delta in side_by_side(sources):
        if isinstance(delta, PromptProgress):
            yield chunk(index, {}) | {"prompt_progress": delta._asdict()}
            continue
        more = _new_logprobs(streams[index], told, index, llm)
        if delta is not None:
            yield chunk(index, delta.as_dict(), **more)
            continue
        done = streams[index].completion
        assert done is not None
        end = chunk(index, {}, **more | {"finish_reason": forms.finish_reason(done)})
        yield end | {"timings": forms.timings(done.timings)}
    visit.done = [stream.completion for stream in streams if stream.completion is not None]
    if asked.wants_usage:
        yield head | {"choices": [], "usage": forms.usage(visit.done)}


def _new_logprobs(stream: AsyncStream, told: list[int], index: int, llm: AsyncLLM) -> dict[str, Any]:
    """What the model thought of the tokens since the last chunk."""
    found = stream.logprobs
    if found is None:
        return {}
    new, told[index] = found[told[index] :], len(found)
    return {"logprobs": forms.chat_logprobs(new, llm.llm.tokenizer)} if new else {}
