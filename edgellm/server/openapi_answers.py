"""JSON Schemas of answers, as far as clients may rely on them. Knows shapes, no route's code. Next hop: `openapi.py`."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]
JSON = "application/json"
TEXT: Schema = {"type": "string"}


def _object(**properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, "required": list(properties)}


def _list(of: Schema) -> Schema:
    return {"type": "array", "items": of}


COUNT: Schema = {"type": "integer", "minimum": 0}
ERROR = _object(
    error=_object(message=TEXT, type=TEXT, param={"type": ["string", "null"]}, code={"type": ["string", "null"]})
)
OLLAMAS_ERROR = _object(error=TEXT)
USAGE = _object(prompt_tokens=COUNT, completion_tokens=COUNT, total_tokens=COUNT)
REASON: Schema = {"enum": ["stop", "length", "tool_calls"]}
MESSAGE = _object(role={"const": "assistant"}, content={"type": ["string", "null"]})
CHAT = _object(
    id=TEXT,
    object={"const": "chat.completion"},
    created=COUNT,
    model=TEXT,
    choices=_list(_object(index=COUNT, message=MESSAGE, finish_reason=REASON)),
    usage=USAGE,
    timings={"type": "object"},
)
COMPLETION = _object(
    id=TEXT,
    object={"const": "text_completion"},
    created=COUNT,
    model=TEXT,
    choices=_list(_object(index=COUNT, text=TEXT, finish_reason=REASON)),
    usage=USAGE,
    timings={"type": "object"},
)
RESPONSE = _object(
    id=TEXT,
    object={"const": "response"},
    created_at=COUNT,
    model=TEXT,
    status={"enum": ["completed", "incomplete"]},
    output=_list(_object(type=TEXT)),
    usage=_object(input_tokens=COUNT, output_tokens=COUNT, total_tokens=COUNT),
)
VECTOR: Schema = {"anyOf": [_list({"type": "number"}), TEXT]}
EMBEDDINGS = _object(
    object={"const": "list"}, data=_list(_object(index=COUNT, embedding=VECTOR)), model=TEXT, usage={"type": "object"}
)
MODEL = _object(id=TEXT, object={"const": "model"}, created=COUNT, owned_by=TEXT)
OLLAMAS_END = {"model": TEXT, "created_at": TEXT, "done": {"const": True}, "done_reason": TEXT}
ANSWERS: dict[str, tuple[str, Schema]] = {
    "/": ("text/html", TEXT),
    "/page/chat.js": ("text/javascript", TEXT),
    "/page/chat.css": ("text/css", TEXT),
    "/openapi.json": (JSON, {"type": "object"}),
    "/v1/chat/completions": (JSON, CHAT),
    "/v1/completions": (JSON, COMPLETION),
    "/v1/responses": (JSON, RESPONSE),
    "/v1/embeddings": (JSON, EMBEDDINGS),
    "/v1/models": (JSON, _object(object={"const": "list"}, data=_list(MODEL))),
    "/v1/models/{name}": (JSON, MODEL),
    "/health": (JSON, _object(status=TEXT)),
    "/metrics": ("text/plain", TEXT),
    "/props": (JSON, _object(build_info=TEXT, model_alias=TEXT, total_slots=COUNT)),
    "/tokenize": (JSON, _object(tokens=_list(COUNT))),
    "/detokenize": (JSON, _object(content=TEXT)),
    "/apply-template": (JSON, _object(prompt=TEXT)),
    "/api/chat": (JSON, _object(**OLLAMAS_END, message={"type": "object"})),
    "/api/generate": (JSON, _object(**OLLAMAS_END, response=TEXT)),
    "/api/embed": (JSON, _object(model=TEXT, embeddings=_list(_list({"type": "number"})), prompt_eval_count=COUNT)),
    "/api/embeddings": (JSON, _object(embedding=_list({"type": "number"}))),
    "/api/ps": (JSON, _object(models=_list({"type": "object"}))),
    "/api/tags": (JSON, _object(models=_list({"type": "object"}))),
    "/api/show": (JSON, _object(template=TEXT, details={"type": "object"}, model_info={"type": "object"})),
    "/api/version": (JSON, _object(version=TEXT)),
}
"""{path: media type and schema of the answer in one piece}."""
STREAMS = {
    "/v1/chat/completions": "text/event-stream",
    "/v1/completions": "text/event-stream",
    "/v1/responses": "text/event-stream",
    "/api/chat": "application/x-ndjson",
    "/api/generate": "application/x-ndjson",
}
"""{path: media type of the answer piece by piece}."""
