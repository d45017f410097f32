"""Ollama's routes that tell what there is: /api/tags, /api/ps, /api/show, /api/version. Source: Ollama's docs/api.md.

What this server does not know of a file (digests, families) stays empty. Next hop: `models.py`.
"""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ..version import __version__
from .answering import Desk
from .models import ServedModel


def now() -> str:
    """The time as Ollama writes it."""
    return datetime.now(timezone.utc).isoformat().replace("+00:00", "Z")


def plain_name(name: str | None) -> str | None:
    """Ollama's clients add a tag to a name that has none."""
    return name.removesuffix(":latest") if name else name


async def tags(request: Request) -> Response:
    """The models there are."""
    desk: Desk = request.app.state.desk
    return JSONResponse({"models": [_describe(model) for model in desk.models.all]})


async def ps(request: Request) -> Response:
    """The models that are loaded."""
    desk: Desk = request.app.state.desk
    loaded = []
    for model in desk.models.all:
        if model.llm is not None:
            more = {"expires_at": None, "size_vram": 0, "context_length": model.llm.llm.max_context}
            loaded.append(_describe(model) | more)
    return JSONResponse({"models": loaded})


def _describe(model: ServedModel) -> dict[str, Any]:
    created = datetime.fromtimestamp(model.created, timezone.utc).isoformat()
    details = {"format": "gguf", "family": "", "families": None, "parameter_size": "", "quantization_level": ""}
    return {
        "name": f"{model.name}:latest",
        "model": f"{model.name}:latest",
        "modified_at": created,
        "size": 0,
        "digest": "",
        "details": details,
    }


async def show(request: Request) -> Response:
    """One model: its template and what its file says of it."""
    desk: Desk = request.app.state.desk
    fields = await desk.read(request)
    name = plain_name(fields.text("model") or fields.text("name"))
    async with desk.models.use(name) as llm:
        template, tokenizer = llm.llm.loaded.template, llm.llm.tokenizer
        capabilities = ["completion"] + (["tools"] if template is not None else [])
        return JSONResponse(
            {
                "modelfile": "",
                "parameters": "",
                "template": "" if template is None else template.sources.get("default", ""),
                "details": _describe(desk.models.find(name))["details"],
                "model_info": {"general.architecture": "", "context_length": llm.llm.max_context or 0}
                | {"tokenizer.ggml.bos_token_id": tokenizer.bos_id},
                "capabilities": capabilities,
            }
        )


async def version(request: Request) -> Response:
    """A version; clients of Ollama ask for it to see who is there."""
    return JSONResponse({"version": __version__})
