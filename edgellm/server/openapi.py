"""`GET /openapi.json`: what this server understands, as an OpenAPI 3.1 document, made of the routes that there are.

Source: OpenAPI Specification 3.1.1. Next hops: `openapi_bodies.py` has the requests, `openapi_answers.py` the answers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ..version import __version__
from .answering import Desk
from .guard import OPEN_PATHS
from .openapi_answers import ANSWERS, ERROR, OLLAMAS_ERROR, STREAMS
from .openapi_bodies import bodies
from .settings import ServerSettings

_PARAMETER = re.compile(r"{(\w+)(?::\w+)?}")
REFUSALS = {
    "400": "A field is wrong, and named, or the body is no JSON object.",
    "401": "The key is missing or wrong.",
    "403": "The Host or the Origin is not one that this server answers to.",
    "404": "There is no such model or place.",
    "413": "The body is too large.",
    "415": "The content type is not application/json.",
    "429": "Too many requests run and wait; Retry-After says when to come again.",
    "503": "The model cannot be had now, or the server ends.",
    "504": "The answer took too long.",
}
OF_READING = ("401", "403", "404")
"""What a request without a body may be refused with."""


async def openapi(request: Request) -> Response:
    """The document."""
    desk: Desk = request.app.state.desk
    routes = ((m, r.path, r.endpoint) for r in request.app.routes if isinstance(r, Route) for m in r.methods or ())
    return JSONResponse(make_document(routes, desk.settings))


def make_document(routes: Iterable[tuple[str, str, Any]], settings: ServerSettings) -> dict[str, Any]:
    """routes: method, path as Starlette has it, and what answers: the first line of its docstring is told."""
    asked, paths = bodies(settings), dict[str, dict[str, Any]]()
    for method, path, endpoint in routes:
        if method not in ("GET", "POST"):
            continue
        plain = _PARAMETER.sub(r"{\1}", path)
        operation = _operation(method, plain, (endpoint.__doc__ or "").strip().split("\n")[0])
        if method == "POST":
            operation["requestBody"] = {"required": True, "content": _json(asked[plain])}
        paths.setdefault(plain, {})[method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": "edgellm", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": {"Error": ERROR, "OllamasError": OLLAMAS_ERROR},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    } | ({} if settings.api_key is None else {"security": [{"key": []}]})


def _operation(method: str, path: str, told: str) -> dict[str, Any]:
    kind, answer = ANSWERS[path]
    content: dict[str, Any] = {kind: {"schema": answer}}
    if path in STREAMS:
        content[STREAMS[path]] = {"schema": {"type": "string"}}
    answers: dict[str, Any] = {"200": {"description": "The answer.", "content": content}}
    if path == "/health":
        answers["503"] = {"description": "Not ready yet: which stage of loading it is in.", "content": content}
    error = "OllamasError" if path.startswith("/api/") else "Error"
    for status, why in REFUSALS.items():
        if status not in answers and (method == "POST" or status in OF_READING):
            answers[status] = {"description": why, "content": _json({"$ref": f"#/components/schemas/{error}"})}
    found: dict[str, Any] = {"operationId": f"{method.lower()}{re.sub(r'[^a-z0-9]+', '_', path)}", "summary": told}
    if names := _PARAMETER.findall(path):
        text = {"type": "string", "minLength": 1}
        found["parameters"] = [{"name": name, "in": "path", "required": True, "schema": text} for name in names]
    if path in OPEN_PATHS:
        found["security"] = []
    return found | {"responses": answers}


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}
