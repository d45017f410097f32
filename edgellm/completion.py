"""What an answer is once it is complete: text, ids, why it ended, how long it took.

Knows no model. Next hop: `stream.py`, where answers come from.
"""

from __future__ import annotations

import dataclasses

from .sequence import Sequence


@dataclasses.dataclass(frozen=True, slots=True)
class Timings:
    """How long an answer took. Tokens per second are 0 where nothing was measured.

    load_s: loading the model. ttft_s: from the request to the first token, tokenizing and queueing included.
    prefill_tokens: tokens of the prompt. decode_tokens: tokens that decode steps made, which is all but the first.
    queued_s: from the request to its first step, tokenizing included.
    reused_tokens: tokens of the prompt that were in the cache already; prefill_tps counts the others.
    """

    load_s: float
    ttft_s: float
    prefill_tokens: int
    prefill_tps: float
    decode_tokens: int
    decode_tps: float
    reused_tokens: int = 0
    queued_s: float = 0.0

    def as_dict(self) -> dict[str, float]:
        """The same names and values, for JSON."""
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True, slots=True)
class Completion:
    """An answer.

    text: without stop strings and control tokens. token_ids: every generated id, the end-of-generation id included.
    finish_reason: "stop" (the model ended, or a stop string came), "length" (max_tokens or the context is used up) or
    "cancelled".
    num_dropped_tokens: tokens of prompt and answer that were out of sight when the last one was chosen: 0 unless a
    window was asked for (window, on_full).
    """

    text: str
    token_ids: list[int]
    prompt_token_ids: list[int]
    finish_reason: str
    timings: Timings
    num_dropped_tokens: int = 0


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
        queued_s=sequence.started_s - sequence.created_s,
    )


def _rate(count: int, seconds: float) -> float:
    return count / seconds if seconds > 0.0 else 0.0
