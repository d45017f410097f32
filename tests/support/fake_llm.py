"""A model that says what it is told to, in place of LLM: for tests of what a person types and sees."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from edgellm.config import EngineConfig, SamplingParams
from edgellm.errors import ContextError


@dataclass
class FakeTimings:
    load_s: float = 0.25
    ttft_s: float = 0.01
    prefill_tokens: int = 4
    prefill_tps: float = 400.0
    decode_tokens: int = 2
    decode_tps: float = 100.0
    reused_tokens: int = 0
    draft_tokens: int = 0
    accepted_tokens: int = 0
    spec_speedup: float = 1.0

    def as_dict(self) -> dict[str, float]:
        return dict(vars(self))


@dataclass
class FakeCompletion:
    text: str
    token_ids: list[int]
    prompt_token_ids: list[int]
    finish_reason: str
    timings: FakeTimings = field(default_factory=FakeTimings)
    num_dropped_tokens: int = 0


class FakeStream:
    """Gives the scripted pieces; one that is an exception is raised, a float is a wait in seconds."""

    def __init__(
        self,
        pieces: list[Any],
        prompt_ids: list[int],
        params: SamplingParams,
        ends: str = "stop",
        reach: int | None = None,
    ) -> None:
        self._reach = reach
        self.is_closed = False
        self._is_done = False
        self._ends = ends
        self._pieces = iter(pieces)
        self._said: list[str] = []
        self._prompt_ids = prompt_ids
        self._params = params
        self.num_tokens = 0

    def __iter__(self) -> FakeStream:
        return self

    def __next__(self) -> str:
        piece = None if len(self._said) == self._params.max_tokens else next(self._pieces, None)
        while isinstance(piece, float):
            time.sleep(piece)
            piece = next(self._pieces, None)
        if piece is None:
            self._is_done = True
            raise StopIteration
        if isinstance(piece, BaseException):
            raise piece
        self._said.append(piece)
        self.num_tokens += 1
        return piece

    def __enter__(self) -> FakeStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def prefill_progress(self) -> tuple[int, int]:
        total = len(self._prompt_ids)
        return (total if self.num_tokens else total // 2), total

    @property
    def completion(self) -> FakeCompletion:
        full = len(self._said) == self._params.max_tokens
        reason = "cancelled" if not self._is_done else "length" if full else self._ends
        total = len(self._prompt_ids) + len(self._said)
        dropped = 0 if self._reach is None else max(0, total - self._reach)
        ids = list(range(len(self._said)))
        return FakeCompletion("".join(self._said), ids, self._prompt_ids, reason, num_dropped_tokens=dropped)

    def close(self) -> None:
        self.is_closed = True


class FakeLLM:
    """The public face of LLM as the commands use it. A token is a letter; each message costs 10 more in a prompt."""

    vocab_size = 100
    load_s = 0.25

    def __init__(self) -> None:
        self.max_context: int | None = 4096
        self.window: int | None = None
        template = SimpleNamespace(render_ids=self._render_ids, source="{{ messages }}")
        self.loaded = SimpleNamespace(weight_bytes=100_000_000, cache_bytes=lambda n: 1000 * n, template=template)
        self.ends = "stop"
        self.script: list[list[Any]] = []
        self.loads: list[tuple[str, EngineConfig]] = []
        self.prompts: list[Any] = []
        self.params: list[SamplingParams] = []
        self.options: list[dict[str, Any]] = []
        self.streams: list[FakeStream] = []
        self.is_closed = False

    def load(self, model: str, config: EngineConfig) -> FakeLLM:
        self.loads.append((model, config))
        return self

    def __enter__(self) -> FakeLLM:
        return self

    def __exit__(self, *_: object) -> None:
        self.is_closed = True

    def tokenize(self, text: str) -> list[int]:
        return list(text.encode())

    def stream(self, prompt: str, params: SamplingParams) -> FakeStream:
        return self._start(prompt, len(self.tokenize(prompt)), params)

    def chat_stream(self, messages: list[dict[str, str]], params: SamplingParams, **options: Any) -> FakeStream:
        self.options.append(options)
        return self._start(messages, len(self._render_ids(messages)), params)

    def generate(self, ids: list[int], params: SamplingParams) -> FakeCompletion:
        self.prompts.append(ids)
        self.params.append(params)
        timings = FakeTimings(prefill_tokens=len(ids), prefill_tps=1000.0, decode_tps=100.0 + len(self.prompts))
        return FakeCompletion("", [], ids, "length", timings)

    def _render_ids(self, messages: list[dict[str, str]], add_generation_prompt: bool = True) -> list[int]:
        return [7] * sum(len(self.tokenize(m["content"])) + 10 for m in messages)

    def _start(self, prompt: Any, tokens: int, params: SamplingParams) -> FakeStream:
        if self.max_context is not None and tokens >= self.max_context:
            raise ContextError(f"the prompt has {tokens} tokens and max_context is {self.max_context}")
        self.prompts.append(prompt)
        self.params.append(params)
        pieces = self.script.pop(0) if self.script else ["Hello", " there"]
        self.streams.append(FakeStream(pieces, [7] * tokens, params, self.ends, self.window))
        return self.streams[-1]
