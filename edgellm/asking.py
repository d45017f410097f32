"""From what a caller says to an answer on its way: ids of the prompt, checked options, how ids are chosen.

Knows text and ids; computes nothing. Next hops: `request.py` checks, `chat_template` renders, `tool_calls` and `structured`
say what an answer may be, `stream.py` and `chat_stream.py` follow it.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from .choosing import Chooser
from .config import SamplingParams
from .errors import UnsupportedError
from .request import (
    Callbacks,
    Standing,
    check_bias,
    merge_params,
    seeds,
    split_callbacks,
    split_standing,
    whole_numbers,
)
from .sequence import Sequence
from .stream import Stream

if TYPE_CHECKING:
    from .chat_stream import ChatStream
    from .embedding import Text
    from .llm import LLM
    from .tool_calls import Turn


class Question(NamedTuple):
    """A request that is checked and rendered. turn: what is known of the conversation it is part of, None for plain text."""

    ids: list[int]
    params: SamplingParams
    callbacks: Callbacks
    created_s: float
    standing: Standing
    turn: Turn | None = None


def ask(llm: LLM, prompt: str | Iterable[int], params: SamplingParams | None, options: Mapping[str, Any]) -> Question:
    """Check a request to continue a prompt. options: callbacks, standing, and fields that replace those of params."""
    created_s = time.perf_counter()
    llm._require_open()
    llm.loaded.engine.require_writer()
    callbacks, rest = split_callbacks(options)
    standing, fields = split_standing(rest)
    return Question(prompt_ids(llm, prompt), merge_params(params, fields), callbacks, created_s, standing)


def ask_chat(
    llm: LLM, messages: Iterable[Mapping[str, Any]], params: SamplingParams | None, options: Mapping[str, Any]
) -> Question:
    """Check a request to answer a conversation and render its prompt. options: as `ask`'s, and those of LLM.chat."""
    from .tool_calls import check_request

    created_s = time.perf_counter()
    llm._require_open()
    llm.loaded.engine.require_writer()
    template = llm.loaded.template
    if template is None:
        raise UnsupportedError("this model has no chat template; continue plain text with generate (run --raw)")
    callbacks, rest = split_callbacks(options)
    standing, rest = split_standing(rest)
    request = check_request(
        rest.pop("tools", None), rest.pop("tool_choice", "auto"), rest.pop("parallel_tool_calls", True)
    )
    documents, template_args = rest.pop("documents", None), rest.pop("template_args", None)
    merged = merge_params(params, rest)
    turn = llm.chat_format.begin(messages, request)
    ids = template.render_ids(turn.messages, tools=turn.tools, documents=documents, template_args=template_args)
    return Question(ids, turn.constrain(merged, ids), callbacks, created_s, standing, turn)


def embed_texts(llm: LLM, texts: str | Iterable[str | Iterable[int]]) -> list[Text]:
    """Return the ids of texts to embed: with what the model wants before and behind them, and never none."""
    from .embedding import Text

    llm._require_open()
    tokenizer = llm.tokenizer
    found = []
    for text in [texts] if isinstance(texts, str) else texts:
        if isinstance(text, str):
            ids = list(tokenizer.encode(text, add_bos=tokenizer.add_bos, add_eos=tokenizer.add_eos))
        else:
            ids = whole_numbers(text)
        ids = ids if ids or tokenizer.bos_id is None else [tokenizer.bos_id]
        found.append(Text(ids, adapters=llm.loaded.adapters.choose(None)))
    return found


def begin(llm: LLM, question: Question, after: Sequence | None = None) -> Stream:
    """Set the engine to work on it. after: a sequence whose prompt it shares, and waits for."""
    return Stream(llm, _make_sequence(llm, question, after), *question.callbacks)


def begin_chat(llm: LLM, question: Question, after: Sequence | None = None) -> ChatStream:
    """Like `begin`, for an answer to a conversation."""
    from .chat_stream import ChatStream

    assert question.turn is not None
    return ChatStream(llm, _make_sequence(llm, question, after), question.turn, *question.callbacks)


def begin_many(llm: LLM, question: Question, n: int) -> list[Stream]:
    """Set the engine to work on n answers; all but the first wait until the prompt is in the cache."""
    first: Sequence | None = None
    streams: list[Stream] = []
    for seed in seeds(question.params.seed, n):
        one = question._replace(params=dataclasses.replace(question.params, seed=seed))
        streams.append((begin if question.turn is None else begin_chat)(llm, one, first))
        first = first or streams[0]._sequence
    return streams


def _make_sequence(llm: LLM, question: Question, after: Sequence | None) -> Sequence:
    chooser = _make_chooser(llm, question.params, question.turn)
    adapters = llm.loaded.adapters.choose(question.params.lora)
    return Sequence(
        question.ids,
        question.params,
        chooser=chooser,
        after=after,
        adapters=adapters,
        created_s=question.created_s,
        **question.standing._asdict(),
    )


def _make_chooser(llm: LLM, params: SamplingParams, turn: Turn | None) -> Chooser:
    """What chooses the ids: with a constraint where the answer must have a form, a watcher where texts are banned."""
    check_bias(params, llm.vocab_size)
    constraint = None
    if params.is_structured:
        from .structured import make_constraint

        constraint = make_constraint(params, llm.tokenizer, llm.eog_ids)
        if turn is not None:
            constraint = turn.wait_for_answer(constraint, llm.eog_ids)
    watcher = None
    if params.banned:
        from .banned import BannedTexts

        watcher = BannedTexts(params.banned, llm.tokenizer.token_bytes)
    return Chooser(params, constraint, watcher, llm.tokenizer.token_bytes)


def prompt_ids(llm: LLM, prompt: str | Iterable[int]) -> list[int]:
    """Return the ids of a prompt: with the begin token if it is text and the model wants one, and never none."""
    text, bos_id = llm.tokenizer, llm.tokenizer.bos_id
    ids = list(text.encode(prompt, add_bos=text.add_bos)) if isinstance(prompt, str) else whole_numbers(prompt)
    return ids if ids or bos_id is None else [bos_id]
