"""Conversations as callers write them, turned into what templates are written for.

Plain values only, OpenAI's forms (parts of content, arguments as JSON text) in the form that a template reads, the names
of reasoning that Transformers gives. Knows OpenAI's and Transformers' forms of messages; renders nothing: `forms.py`
says what a template reads.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import TemplateError

Message = Mapping[str, Any]
Conversation = list[dict[str, Any]]

MAX_NESTING = 100
_TEXT_PARTS = frozenset(("text", "input_text", "output_text"))
_MEDIA = ("image", "audio", "video", "file")
_REASONING = ("reasoning_content", "thinking", "reasoning")


def plain(value: Any, what: str, depth: int = 0) -> Any:
    """Return a copy made of JSON's types, which have no methods that could harm. Raises TemplateError, naming `what`."""
    if depth > MAX_NESTING:
        raise TemplateError(f"{what} is nested more than {MAX_NESTING} deep; flatten it")
    if value is None or type(value) in (str, int, float, bool):
        return value
    for kind in (str, int, float):
        if isinstance(value, kind):
            return kind(value) if kind is not str else str.__str__(value)
    if isinstance(value, Mapping):
        return {_key(key, what): plain(item, what, depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item, what, depth + 1) for item in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name), what, depth + 1) for f in dataclasses.fields(value)}
    if callable(getattr(value, "model_dump", None)):  # a Pydantic model, as OpenAI's client returns
        return plain(value.model_dump(), what, depth + 1)
    raise TemplateError(f"{what} holds a {type(value).__name__}, which JSON does not know: give texts, numbers, lists")


def _key(key: Any, what: str) -> Any:
    if isinstance(key, str):
        return str.__str__(key)
    if key is None or isinstance(key, (bool, int, float)):
        return key
    raise TemplateError(f"{what} has a {type(key).__name__} as the name of a field: give a text")


def read(messages: Sequence[Any]) -> Conversation:
    """Return messages as mappings of plain values, checked, without fields that are None, which templates would print."""
    if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Sequence):
        raise TemplateError(f"messages must be a list of mappings, not a {type(messages).__name__}")
    if not messages:
        raise TemplateError("there are no messages: a chat template needs at least one")
    conversation = []
    for number, message in enumerate(messages, 1):
        given = plain(message, f"message {number}") if not isinstance(message, (str, int, float)) else None
        if not isinstance(given, dict) or not isinstance(given.get("role"), str):
            raise TemplateError(f"message {number} must be a mapping with a text as its role, not {message!r:.80}")
        _refuse_media(given.get("content"), number)
        conversation.append(_with_reasoning({name: item for name, item in given.items() if item is not None}))
    return conversation


def _with_reasoning(message: dict[str, Any]) -> dict[str, Any]:
    # As Transformers names it: each template reads one of these.
    found = next((message[name] for name in _REASONING if name in message), None)
    return message if found is None else {"thinking": found, **message, "reasoning_content": found}


def _refuse_media(content: Any, number: int) -> None:
    for part in content if isinstance(content, list) else ():
        kind = part.get("type") if isinstance(part, dict) else None
        if isinstance(kind, str) and any(name in kind for name in _MEDIA):
            raise TemplateError(f"message {number} has a part of type {kind!r:.40}; edgellm reads text: leave it out")


def with_text(conversation: Conversation) -> Conversation:
    """Return messages whose content is one text: parts of text are joined by line breaks."""
    return [
        message if not isinstance(message.get("content"), list) else message | {"content": _join(message, number)}
        for number, message in enumerate(conversation, 1)
    ]


def _join(message: Message, number: int) -> Any:
    texts = []
    for part in message["content"]:
        if isinstance(part, dict) and isinstance(kind := part.get("type"), str) and kind in _TEXT_PARTS:
            part = part.get("text", "")
        if not isinstance(part, str):
            if message["role"] == "tool":  # some templates read results of tools in forms of their own
                return message["content"]
            kind = part.get("type") if isinstance(part, dict) else type(part).__name__
            raise TemplateError(
                f"message {number} has a part of type {kind!r:.40}; the template reads parts of text only"
            )
        texts.append(part)
    return "\n".join(texts)


def with_parts(conversation: Conversation) -> Conversation:
    """Return messages whose content is a list of parts."""
    return [
        message | {"content": [{"type": "text", "text": text}]}
        if isinstance(text := message.get("content"), str)
        else message
        for message in conversation
    ]


def with_arguments(conversation: Conversation, as_text: bool) -> Conversation:
    """Return messages whose tool calls have their arguments as JSON text, or as the mapping that it says."""
    return [
        message | {"tool_calls": [_with_arguments(call, as_text) for call in calls]}
        if isinstance(calls := message.get("tool_calls"), list)
        else message
        for message in conversation
    ]


def _with_arguments(call: Any, as_text: bool) -> Any:
    function = call.get("function", call) if isinstance(call, dict) else None
    if not isinstance(function, dict) or "arguments" not in function:
        return call
    arguments = function["arguments"]
    if as_text and not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False)
    elif not as_text and isinstance(arguments, str):
        arguments = _parsed(arguments)
    changed = function | {"arguments": arguments}
    return call | {"function": changed} if "function" in call else changed


def _parsed(text: str) -> Any:
    try:
        value = json.loads(text) if text.strip() else {}
    except (ValueError, RecursionError):
        return text  # a model wrote it: the template shows it as it is
    return plain(value, "the arguments of a tool call") if isinstance(value, dict) else text
