"""`POST /v1/completions`: texts continued as they are. Next hop: `forms.py`."""

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
from .problems import bad
from .reading import after_reading
from .sampling import read_answers, read_sampling
from .side_by_side import side_by_side
from .standing import read_standing

MAX_LOGPROBS = 20
DEFAULT_MAX_TOKENS = 16
"""OpenAI's."""

Prompt = str | list[int]


class CompletionRequest:
    """A request that is read and checked. prompts: texts or ids, each continued n times."""

    def __init__(self, fields: Fields, desk: Desk) -> None:
        self.model = fields.text("model")
        self.n = read_answers(fields, desk.settings.max_answers)
        self.prompts = read_prompts(fields, "prompt", desk.settings.max_answers)
        self.is_stream, self.echo = fields.flag("stream"), fields.flag("echo")
        self.suffix = fields.text("suffix")
        if self.suffix:
            raise bad("suffix", self.suffix, "left out: filling in the middle is not offered")
        self.wants_progress = fields.flag("return_progress")
        self.wants_usage = self.is_stream and bool((fields.object("stream_options") or {}).get("include_usage"))
        self.options = {"max_tokens": DEFAULT_MAX_TOKENS} | read_sampling(fields)
        if (logprobs := fields.whole("logprobs", 0, MAX_LOGPROBS)) is not None:
            self.options["logprobs"] = logprobs
        self.seeds = seeds(self.options.pop("seed", None), self.n)

    def begin(self, llm: AsyncLLM) -> list[AsyncStream]:
        """n answers to each prompt, in order."""
        return [llm.stream(prompt, seed=seed, **self.options) for prompt in self.prompts for seed in self.seeds]

    def echoed(self, llm: AsyncLLM, index: int) -> str:
        """The prompt's text, where it is wanted before the answer."""
        if not self.echo:
            return ""
        prompt = self.prompts[index // self.n]
        return prompt if isinstance(prompt, str) else llm.llm.detokenize(prompt)


def read_prompts(fields: Fields, name: str, most: int) -> list[Prompt]:
    """A text, a list of ids, or a list of either."""
    value = fields.get(name)
    wanted = "a text, a list of token ids, or a list of either"
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list) or not value:
        raise bad(name, value, wanted)
    if all(isinstance(item, int) and not isinstance(item, bool) for item in value):
        return [value]
    if len(value) > most:
        raise bad(name, f"a list of {len(value)}", f"a list of at most {most}")
    for item in value:
        is_ids = isinstance(item, list) and item and all(type(i) is int for i in item)
        if not isinstance(item, str) and not is_ids:
            raise bad(name, item, wanted)
    return value


async def completions(request: Request) -> Response:
    """Continue one or several texts."""
    desk: Desk = request.app.state.desk
    fields = await desk.read(request)
    asked = CompletionRequest(fields, desk)
    asked.options |= read_standing(request, fields)
    name = desk.models.find(asked.model).name
    async with Visit(desk, request) as visit:
        llm = await visit.open(asked.model)
        streams = await visit.begin(asked.begin(llm))
        head = forms.head("cmpl", "text_completion", name)
        if asked.is_stream:
            return Events(_events(asked, head, llm, streams, visit), visit)
        done = await visit.finish(streams)
        choices = [_choice(i, one, asked.echoed(llm, i) + one.text, llm) for i, one in enumerate(done)]
        more = {"usage": forms.usage(done), "timings": forms.timings(done[0].timings)}
        return JSONResponse(head | {"choices": choices} | more)


def _choice(index: int, done: Completion, text: str, llm: AsyncLLM) -> dict[str, Any]:
    logprobs = None if done.logprobs is None else forms.text_logprobs(done.logprobs, llm.llm.tokenizer)
    return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": forms.finish_reason(done)}


async def _events(
    asked: CompletionRequest, head: dict[str, Any], llm: AsyncLLM, streams: list[AsyncStream], visit: Visit
) -> AsyncIterator[dict[str, Any]]:
    if asked.wants_usage:
        head["usage"] = None

    def chunk(index: int, text: str, **more: Any) -> dict[str, Any]:
        return head | {"choices": [{"index": index, "text": text, "logprobs": None, "finish_reason": None, **more}]}

    for index in range(len(streams) if asked.echo else 0):
        yield chunk(index, asked.echoed(llm, index))
    told = [0] * len(streams)
    sources = [after_reading(stream, stream, asked.wants_progress) for stream in streams]
    async for index, piece in side_by_side(sources):
        if isinstance(piece, PromptProgress):
            yield chunk(index, "") | {"prompt_progress": piece._asdict()}
            continue
        stream = streams[index]
        found = stream.logprobs or []
        new, told[index] = found[told[index] :], len(found)
        more = {"logprobs": forms.text_logprobs(new, llm.llm.tokenizer)} if new else {}
        if piece is not None:
            yield chunk(index, piece, **more)
            continue
        assert stream.completion is not None
        end = chunk(index, "", **more | {"finish_reason": forms.finish_reason(stream.completion)})
        yield end | {"timings": forms.timings(stream.completion.timings)}
    visit.done = [stream.completion for stream in streams if stream.completion is not None]
    if asked.wants_usage:
        yield head | {"choices": [], "usage": forms.usage(visit.done)}
