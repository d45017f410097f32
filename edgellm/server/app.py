"""The application: every route, and what holds for all of them.

The main path of a request: `guard.py` lets it in, a route reads its fields, `models.py` has the model, `..async_llm` answers,
`forms.py` gives the answer its shape. Next hop: `chat.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ..errors import EdgeLLMError
from . import (
    chat,
    completions,
    embeddings,
    ollama,
    ollama_embeddings,
    ollama_models,
    openapi,
    page,
    responses,
    status,
    tokens,
)
from .answering import Desk
from .guard import Guard
from .models import ServedModels
from .problems import NAMES, USERS_FAULT, ApiError, from_error
from .settings import ServerSettings

log = logging.getLogger("edgellm.server")

ROUTES = (
    ("GET", "/", page.route("index.html", "text/html")),
    ("GET", "/page/chat.js", page.route("chat.js", "text/javascript")),
    ("GET", "/page/chat.css", page.route("chat.css", "text/css")),
    ("POST", "/v1/chat/completions", chat.chat),
    ("POST", "/v1/completions", completions.completions),
    ("POST", "/v1/responses", responses.responses),
    ("POST", "/v1/embeddings", embeddings.embeddings),
    ("GET", "/v1/models", status.models),
    ("GET", "/v1/models/{name:path}", status.model),
    ("GET", "/openapi.json", openapi.openapi),
    ("GET", "/health", status.health),
    ("GET", "/metrics", status.metrics),
    ("GET", "/props", status.props),
    ("POST", "/tokenize", tokens.tokenize),
    ("POST", "/detokenize", tokens.detokenize),
    ("POST", "/apply-template", tokens.apply_template),
    ("POST", "/api/chat", ollama.chat),
    ("POST", "/api/generate", ollama.generate),
    ("POST", "/api/embed", ollama_embeddings.embed),
    ("POST", "/api/embeddings", ollama_embeddings.embeddings),
    ("GET", "/api/tags", ollama_models.tags),
    ("GET", "/api/ps", ollama_models.ps),
    ("POST", "/api/show", ollama_models.show),
    ("GET", "/api/version", ollama_models.version),
)


def make_app(models: ServedModels, settings: ServerSettings) -> Starlette:
    """Make the ASGI application. The default model begins to load when the server starts."""
    desk = Desk(models, settings)
    middleware = [Middleware(Guard, settings=settings)]
    if settings.cors_origins:
        middleware.insert(
            0,
            Middleware(
                CORSMiddleware,
                allow_origins=settings.cors_origins,
                allow_methods=("GET", "POST"),
                allow_headers=("Authorization", "Content-Type"),
            ),
        )
    app = Starlette(
        routes=[Route(path, endpoint, methods=[method]) for method, path, endpoint in ROUTES],
        middleware=middleware,
        exception_handlers={
            HTTPException: _on_http,
            Exception: _on_error,
            ApiError: _on_error,
            EdgeLLMError: _on_error,
        },
        lifespan=_lifespan,
    )
    app.state.desk = desk
    return app


@contextlib.asynccontextmanager
async def _lifespan(app: Starlette) -> AsyncIterator[None]:
    desk: Desk = app.state.desk
    loading = asyncio.create_task(_load(desk))
    watching = asyncio.create_task(desk.models.unload_idle())
    try:
        yield
    finally:
        desk.is_ending = True
        for task in (loading, watching):
            task.cancel()
        await asyncio.gather(loading, watching, return_exceptions=True)
        await desk.models.close()


async def _load(desk: Desk) -> None:
    model = desk.models.default
    try:
        await model.load()
        log.info("%s is ready", model.name)
    except EdgeLLMError as error:  # told again to whoever asks for it
        log.error("%s cannot be loaded: %s", model.name, error)


async def _on_error(request: Request, error: Exception) -> Response:
    if not isinstance(error, (ApiError, *USERS_FAULT)):
        log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    given = getattr(request.state, "given", ())
    found = from_error(error).named_as(NAMES.get(request.url.path, {}), given)
    return JSONResponse(found.body_for(request.url.path), found.status, found.headers)


async def _on_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    known = ", ".join(path for _, path, _ in ROUTES)
    what = f"there is no {request.method} {request.url.path} here; there are {known}"
    message = what if error.status_code in (404, 405) else str(error.detail)
    body = ApiError(error.status_code, message).body_for(request.url.path)
    return JSONResponse(body, error.status_code, error.headers)
