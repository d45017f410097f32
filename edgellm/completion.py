"""What an answer is once it is complete: text, ids, why it ended, how long it took.

Knows no model. Next hop: `stream.py`, where answers come from.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from .sampling import TokenLogprobs
from .sequence import Sequence

if TYPE_CHECKING:
    from .tool_calls import ToolCall


@dataclasses.dataclass(frozen=True, slots=True)
class Timings:
    """How long an answer took. Tokens per second are 0 where nothing was measured.

    load_s: loading the model. ttft_s: from the request to the first token, tokenizing and queueing included.
    prefill_tokens: tokens of the prompt. decode_tokens: tokens that decode steps made, which is all but the first.
    reused_tokens: tokens of the prompt that were in the cache already; prefill_tps counts the others.
    """

    load_s: float
    ttft_s: float
    prefill_tokens: int
    prefill_tps: float
    decode_tokens: int
    decode_tps: float
    reused_tokens: int = 0

    def as_dict(self) -> dict[str, float]:
        """The same names and values, for JSON."""
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True, slots=True)
class Completion:
    """An answer.

    text: without stop strings and control tokens; of an answer to a conversation also without reasoning and calls of tools.
    token_ids: every generated id, the end-of-generation id included.
    finish_reason: "stop" (the model ended, or a stop string came), "tool_calls" (it ended and wants functions called),
    "length" (max_tokens or the context is used up) or "cancelled".
    num_dropped_tokens: tokens of prompt and answer that were out of sight when the last one was chosen: 0 unless a
    window was asked for (window, on_full).
    logprobs: what the model thought at each of token_ids, where that was asked for.
    reasoning: what the model thought aloud before its answer. tool_calls: functions it wants called. raw_text: all of it as
    the model wrote it, marks included.
    """

    text: str
    token_ids: list[int]
    prompt_token_ids: list[int]
    finish_reason: str
    timings: Timings
    num_dropped_tokens: int = 0
    logprobs: list[TokenLogprobs] | None = None
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    raw_text: str = ""

    @property
    def content(self) -> str:
        """The text, under OpenAI's name."""
        return self.text

    @property
    def message(self) -> dict[str, Any]:
        """The answer as a message in OpenAI's shape, to go on with: append it, then the calls' results, and chat again."""
        message: dict[str, Any] = {"role": "assistant", "content": self.text}
        if self.reasoning:
            message["reasoning_content"] = self.reasoning
        if self.tool_calls:
            message["tool_calls"] = [call.as_dict() for call in self.tool_calls]
        return message


def measure(sequence: Sequence, num_tokens: int, load_s: float) -> Timings:
    """Timings of a sequence whose first `num_tokens` generated ids are the answer."""
    if sequence.started_s is None or sequence.first_token_s is None or sequence.last_token_s is None:
        return Timings(load_s, 0.0, sequence.num_prompt, 0.0, 0, 0.0, sequence.num_reused)
    decode_s = sequence.last_token_s - sequence.first_token_s
    return Timings(
        load_s=load_s,
        ttft_s=sequence.first_token_s - sequence.created_s,
        prefill_tokens=sequence.num_prompt,
        prefill_tps=_rate(sequence.num_prompt - sequence.num_reused, sequence.first_token_s - sequence.started_s),
        decode_tokens=max(num_tokens - 1, 0),
        decode_tps=_rate(sequence.num_output - 1, decode_s),
        reused_tokens=sequence.num_reused,
    )


def _rate(count: int, seconds: float) -> float:
    return count / seconds if seconds > 0.0 else 0.0
