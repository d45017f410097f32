"""What answers look like: OpenAI's objects, with llama-server's timings. Knows completions, no HTTP.

Source of the shapes: OpenAI API reference (chat completions, completions); llama-server's README (timings).
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Sequence
from typing import Any

from ..completion import Completion, Timings
from ..sampling import TokenLogprobs
from ..tokenizer import Tokenizer


def make_id(prefix: str) -> str:
    """A name for an answer."""
    return f"{prefix}-{uuid.uuid4().hex[:24]}"


def head(prefix: str, kind: str, model: str) -> dict[str, Any]:
    """What an answer, or each chunk of one, begins with. prefix: of its name."""
    return {"id": make_id(prefix), "object": kind, "created": int(time.time()), "model": model}


def usage(done: Sequence[Completion]) -> dict[str, Any]:
    """Tokens of the prompt, counted once, and of all answers."""
    prompt, answers = len(done[0].prompt_token_ids), sum(len(one.token_ids) for one in done)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": answers,
        "total_tokens": prompt + answers,
        "prompt_tokens_details": {"cached_tokens": done[0].timings.reused_tokens},
    }


def timings(t: Timings) -> dict[str, Any]:
    """llama-server's names."""
    computed, decode_ms = t.prefill_tokens - t.reused_tokens, _ms(t.decode_tokens, t.decode_tps)
    prompt_ms = _ms(computed, t.prefill_tps)
    found = {
        "cache_n": t.reused_tokens,
        "prompt_n": computed,
        "prompt_ms": prompt_ms,
        "prompt_per_token_ms": prompt_ms / computed if computed else 0.0,
        "prompt_per_second": t.prefill_tps,
        "predicted_n": t.decode_tokens + 1,
        "predicted_ms": decode_ms,
        "predicted_per_token_ms": 1000.0 / t.decode_tps if t.decode_tps else 0.0,
        "predicted_per_second": t.decode_tps,
    }
    if t.draft_tokens:
        found |= {"draft_n": t.draft_tokens, "draft_n_accepted": t.accepted_tokens}
    return found


def _ms(count: int, per_second: float) -> float:
    return 1000.0 * count / per_second if per_second else 0.0


def finish_reason(done: Completion) -> str:
    """OpenAI's word."""
    return {"cancelled": "stop"}.get(done.finish_reason, done.finish_reason)


def message(done: Completion) -> dict[str, Any]:
    """The assistant's message; content is null where only functions are called."""
    found = done.message
    if done.tool_calls and not done.text:
        found["content"] = None
    return found | {"refusal": None}


def chat_logprobs(found: Sequence[TokenLogprobs], tokenizer: Tokenizer) -> dict[str, Any]:
    """`logprobs` of a chat: a list of tokens with their alternatives."""
    return {"content": [chat_logprob(one, tokenizer) for one in found], "refusal": None}


def chat_logprob(found: TokenLogprobs, tokenizer: Tokenizer) -> dict[str, Any]:
    """One token."""
    top = [_token(token_id, logprob, tokenizer) for token_id, logprob in found.top]
    return _token(found.token_id, found.logprob, tokenizer) | {"top_logprobs": top}


def _token(token_id: int, logprob: float, tokenizer: Tokenizer) -> dict[str, Any]:
    data = tokenizer.token_bytes(token_id)
    # JSON has no infinity; OpenAI says -9999 for what cannot be.
    return {"token": data.decode("utf-8", "replace"), "logprob": max(logprob, -9999.0), "bytes": list(data)}


def text_logprobs(found: Sequence[TokenLogprobs], tokenizer: Tokenizer) -> dict[str, Any]:
    """`logprobs` of a completion: parallel lists."""
    tokens = [_token(one.token_id, one.logprob, tokenizer) for one in found]
    offsets, at = [], 0
    for token in tokens:
        offsets.append(at)
        at += len(token["token"])
    return {
        "tokens": [token["token"] for token in tokens],
        "token_logprobs": [token["logprob"] for token in tokens],
        "top_logprobs": [{_token(i, p, tokenizer)["token"]: max(p, -9999.0) for i, p in one.top} for one in found],
        "text_offset": offsets,
    }


compact = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
"""JSON as short as it can be. Made once: json.dumps would make an encoder for every piece."""


def event(data: Any) -> bytes:
    """One server-sent event."""
    text = data if isinstance(data, str) else compact(data)
    return f"data: {text}\n\n".encode()


DONE = event("[DONE]")
