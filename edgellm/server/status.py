"""What a server says of itself: health, models, metrics, properties. Next hop: `models.py`."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from ..version import __version__
from .answering import Desk
from .models import ServedModel


async def health(request: Request) -> Response:
    """Readiness: 200 once the default model can answer, 503 with the stage of loading until then."""
    desk: Desk = request.app.state.desk
    state = "ending" if desk.is_ending else desk.models.default.state
    is_ready = state in ("ready", "idle")  # what is idle is loaded when it is asked for
    return JSONResponse({"status": "ok" if is_ready else state}, 200 if is_ready else 503)


async def models(request: Request) -> Response:
    """OpenAI's list."""
    desk: Desk = request.app.state.desk
    return JSONResponse({"object": "list", "data": [_describe(model) for model in desk.models.all]})


async def model(request: Request) -> Response:
    """One of them."""
    desk: Desk = request.app.state.desk
    return JSONResponse(_describe(desk.models.find(request.path_params["name"])))


def _describe(model: ServedModel) -> dict[str, Any]:
    found: dict[str, Any] = {
        "id": model.name,
        "object": "model",
        "created": model.created,
        "owned_by": "edgellm",
        "status": model.state,
    }
    if model.llm is not None:
        llm = model.llm.llm
        found["meta"] = {"n_vocab": llm.vocab_size, "n_ctx": llm.max_context}
    return found


async def metrics(request: Request) -> Response:
    """Counts for Prometheus."""
    desk: Desk = request.app.state.desk
    loaded = {model.name: model.llm.llm.loaded for model in desk.models.all if model.llm is not None}
    text = desk.statistics.text({name: one.engine.occupancy for name, one in loaded.items()})
    return PlainTextResponse(text, media_type="text/plain; version=0.0.4")


async def props(request: Request) -> Response:
    """llama-server's properties, as far as they have a meaning here."""
    desk: Desk = request.app.state.desk
    model = desk.models.default
    found: dict[str, Any] = {"build_info": f"edgellm {__version__}", "model_alias": model.name, "total_slots": 1}
    if model.llm is not None:
        loaded = model.llm.llm.loaded
        template = loaded.template
        found["total_slots"] = loaded.config.max_sequences
        found["default_generation_settings"] = {"n_ctx": model.llm.llm.max_context}
        found["chat_template"] = "" if template is None else template.sources.get("default", "")
    return JSONResponse(found)
