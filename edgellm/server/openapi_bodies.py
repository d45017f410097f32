"""JSON Schemas of the bodies of requests, from the tables that the routes read them by. null counts as missing everywhere.

Knows fields, no route's code. Next hop: `openapi.py`.
"""

from __future__ import annotations

from typing import Any

from ..config_sampling import RANGES
from ..request import MAX_PRIORITY
from .chat import MAX_TOP_LOGPROBS
from .completions import MAX_LOGPROBS
from .embeddings import FORMATS, MAX_TEXTS
from .ollama import RENAMED
from .sampling import MAX_STOPS, MAX_TOKENS, NUMBERS, WHOLES
from .settings import ServerSettings

Schema = dict[str, Any]


def _maybe(kind: str, **more: Any) -> Schema:
    return {"type": [kind, "null"], **more}


def _number(name: str) -> Schema:
    limits = zip(("minimum", "maximum"), RANGES[name], strict=False)
    return _maybe("number", **dict(limits))


def _texts(most: int) -> Schema:
    texts = {"type": "array", "items": {"type": "string"}, "maxItems": most}
    return {"anyOf": [{"type": "string"}, texts, {"type": "null"}]}


def _prompts(most: int) -> Schema:
    ids: Schema = {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1}
    several = {"type": "array", "items": {"anyOf": [{"type": "string"}, ids]}, "minItems": 1, "maxItems": most}
    return {"anyOf": [{"type": "string"}, ids, several]}


TEXT, FLAG, OBJECT = _maybe("string"), _maybe("boolean"), _maybe("object")
OBJECTS = _maybe("array", items={"type": "object"})
COUNT = _maybe(
    "integer", minimum=-1, maximum=MAX_TOKENS, description="0 is refused, -1 is as much as the context holds"
)
CALL = {
    "type": "object",
    "properties": {
        "id": TEXT,
        "type": {"const": "function"},
        "function": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "arguments": {"type": ["string", "object"]}},
            "required": ["name", "arguments"],
        },
    },
    "required": ["function"],
}
PART = {
    "type": "object",
    "properties": {"type": {"const": "text"}, "text": {"type": "string"}},
    "required": ["type", "text"],
}
MESSAGE = {
    "type": "object",
    "properties": {
        "role": {"enum": ["system", "developer", "user", "assistant", "tool"]},
        "content": {"anyOf": [TEXT, {"type": "array", "items": PART}]},
        "reasoning_content": TEXT,
        "tool_calls": _maybe("array", items=CALL),
        "tool_call_id": TEXT,
        "name": TEXT,
    },
    "required": ["role", "content"],
}
MESSAGES = {"type": "array", "items": MESSAGE, "minItems": 1}
FUNCTION = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "description": TEXT, "parameters": OBJECT},
    "required": ["name"],
}
TOOLS = _maybe(
    "array",
    items={
        "type": "object",
        "properties": {"type": {"const": "function"}, "function": FUNCTION},
        "required": ["type", "function"],
    },
)
TOOL_CHOICE = {
    "anyOf": [
        {"enum": ["none", "auto", "required", None]},
        {"type": "object", "properties": {"type": {"const": "function"}, "function": FUNCTION}},
    ]
}
RESPONSE_FORMAT = _maybe(
    "object",
    properties={
        "type": {"enum": ["text", "json_object", "json_schema"]},
        "json_schema": {"type": "object", "properties": {"name": TEXT, "strict": FLAG, "schema": OBJECT}},
    },
    required=["type"],
)
ANSWERING = ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/api/chat", "/api/generate")
PRIORITY = _maybe("integer", minimum=-MAX_PRIORITY, maximum=MAX_PRIORITY, description="the lower the sooner")
USER = {"description": "whose request it is: clients take turns; what is no text means nothing"}
STREAM_OPTIONS = _maybe("object", properties={"include_usage": FLAG})


def sampling() -> dict[str, Schema]:
    """What `sampling.read_sampling` reads."""
    bias = {"type": "number", "minimum": -100, "maximum": 100}
    return {
        **{name: _number(name) for name in NUMBERS},
        **{name: _maybe("integer", minimum=-1, maximum=1 << 31) for name in WHOLES},
        "max_tokens": COUNT,
        "max_completion_tokens": COUNT | {"description": "goes before max_tokens"},
        "n_predict": COUNT,
        "stop": _texts(MAX_STOPS),
        "seed": _maybe("integer", minimum=-(2**63), maximum=2**64 - 1),
        "logit_bias": _maybe("object", additionalProperties=bias, propertyNames={"pattern": "^[0-9]{1,10}$"}),
        "ignore_eos": FLAG,
        "response_format": RESPONSE_FORMAT,
        "json_schema": OBJECT,
        "grammar": TEXT,
    }


def bodies(settings: ServerSettings) -> dict[str, Schema]:
    """{path: schema} of all routes that take a body."""
    n = _maybe("integer", minimum=1, maximum=settings.max_answers)
    of_all = {"model": TEXT, "stream": FLAG}
    chat = {**of_all, **sampling(), "messages": MESSAGES, "n": n, "stream_options": STREAM_OPTIONS}
    chat |= {"logprobs": FLAG, "top_logprobs": _maybe("integer", minimum=0, maximum=MAX_TOP_LOGPROBS)}
    chat |= {"tools": TOOLS, "tool_choice": TOOL_CHOICE, "parallel_tool_calls": FLAG, "chat_template_kwargs": OBJECT}
    text = {**of_all, **sampling(), "prompt": _prompts(settings.max_answers), "n": n, "stream_options": STREAM_OPTIONS}
    text |= {"echo": FLAG, "suffix": _maybe("string", maxLength=0)}
    text |= {"logprobs": _maybe("integer", minimum=0, maximum=MAX_LOGPROBS)}
    vectors = {"model": TEXT, "input": _prompts(MAX_TEXTS), "encoding_format": {"enum": [*FORMATS, None]}}
    vectors |= {"dimensions": _maybe("integer", minimum=1, maximum=1 << 20)}
    tokens = {"model": TEXT, "content": {"type": "string"}, "add_special": FLAG, "parse_special": FLAG}
    template = {"model": TEXT, "messages": MESSAGES, "tools": TOOLS}
    found = {
        "/v1/chat/completions": _object(chat, "messages"),
        "/v1/completions": _object(text, "prompt"),
        "/v1/responses": _object(_responses() | of_all, "input"),
        "/v1/embeddings": _object(vectors, "input"),
        "/tokenize": _object(tokens, "content"),
        "/detokenize": _object({"model": TEXT, "tokens": {"type": "array", "items": {"type": "integer"}}}, "tokens"),
        "/apply-template": _object(template, "messages"),
        "/api/embed": _object({name: vectors[name] for name in ("model", "input", "dimensions")}, "input"),
        **_ollama(of_all),
    }
    for path in ANSWERING:
        found[path]["properties"]["priority"] = PRIORITY
    for path in ("/v1/chat/completions", "/v1/completions"):
        found[path]["properties"]["return_progress"] = FLAG
    for body in found.values():
        body["properties"]["user"] = USER
    return found


def _responses() -> dict[str, Schema]:
    part = {
        "type": "object",
        "properties": {"type": {"enum": ["input_text", "output_text"]}, "text": {"type": "string"}},
    }
    part["required"] = ["type", "text"]
    content = {"anyOf": [{"type": "string"}, {"type": "array", "items": part}]}
    role = {"enum": ["system", "developer", "user", "assistant"]}
    message = {"type": "object", "properties": {"role": role, "content": content}, "required": ["role", "content"]}
    result = {"type": {"const": "function_call_output"}, "call_id": {"type": "string"}, "output": content}
    call = {"type": {"const": "function_call"}, "call_id": {"type": "string"}}
    call |= {"name": {"type": "string"}, "arguments": {"type": "string"}}
    items = [message, _object(call, *call), _object(result, *result)]
    tool = {"type": {"const": "function"}, **FUNCTION["properties"]}  # type: ignore[dict-item]
    form = _maybe(
        "object", properties={"type": {"enum": ["text", "json_object", "json_schema"]}, "schema": OBJECT, "name": TEXT}
    )
    of_chats = sampling()
    for name in ("max_tokens", "max_completion_tokens", "response_format"):
        del of_chats[name]
    nothing = {"type": "null", "description": "nothing is stored here: send the whole input"}
    return of_chats | {
        "input": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"anyOf": items}, "minItems": 1}]},
        "instructions": TEXT,
        "max_output_tokens": COUNT,
        "text": _maybe("object", properties={"format": form}),
        "tools": _maybe("array", items=_object(tool, "type", "name")),
        "tool_choice": {"anyOf": [{"enum": ["none", "auto", "required", None]}, {"type": "object"}]},
        "parallel_tool_calls": FLAG,
        "metadata": OBJECT,
        "previous_response_id": nothing,
        "conversation": nothing,
    }


def _ollama(of_all: dict[str, Schema]) -> dict[str, Schema]:
    known = sampling()
    options = {**known, **{theirs: known[ours] for theirs, ours in RENAMED.items()}}
    form = {"anyOf": [{"enum": ["json", "", None]}, {"type": "object"}]}
    asked = {**of_all, "options": _maybe("object", properties=options), "format": form}
    asked |= {"logprobs": FLAG, "top_logprobs": _maybe("integer", minimum=0, maximum=MAX_TOP_LOGPROBS)}
    asked |= {"images": _maybe("array", maxItems=0)}
    chat = {**asked, "messages": MESSAGES | {"minItems": 0}, "tools": TOOLS, "think": FLAG}
    text = {**asked, "prompt": TEXT, "system": TEXT, "raw": FLAG, "suffix": _maybe("string", maxLength=0)}
    return {
        "/api/chat": _object(chat),
        "/api/generate": _object(text),
        "/api/embeddings": _object({"model": TEXT, "prompt": {"type": "string", "minLength": 1}}, "prompt"),
        "/api/show": _object({"model": TEXT, "name": TEXT}),
    }


def _object(properties: dict[str, Any], *required: str) -> Schema:
    return {"type": "object", "properties": properties, "required": list(required)}
