"""Ollama's embeddings: /api/embed, and /api/embeddings as it was before. Source: Ollama's docs/api.md.

A text that is too long is refused, whatever `truncate` says: a vector of half a text is a wrong answer. Next hop:
`embeddings.py` makes the vectors.
"""

from __future__ import annotations

import time

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from .answering import Desk
from .completions import read_prompts
from .embeddings import MAX_TEXTS, embed_texts
from .ollama_models import plain_name
from .problems import bad


async def embed(request: Request) -> Response:
    """A vector for each text."""
    desk: Desk = request.app.state.desk
    fields = await desk.read(request)
    began = time.monotonic()
    texts = read_prompts(fields, "input", MAX_TEXTS)
    name = desk.models.find(plain_name(fields.text("model"))).name
    vectors, count = await embed_texts(request, name, texts, fields.whole("dimensions", 1, 1 << 20))
    took = int((time.monotonic() - began) * 1e9)
    head = {"model": fields.text("model") or name, "embeddings": vectors.tolist()}
    return JSONResponse(head | {"total_duration": took, "load_duration": 0, "prompt_eval_count": count})


async def embeddings(request: Request) -> Response:
    """The vector of one text."""
    desk: Desk = request.app.state.desk
    fields = await desk.read(request)
    prompt = fields.text("prompt")
    if not prompt:
        raise bad("prompt", prompt, "a text")
    name = desk.models.find(plain_name(fields.text("model"))).name
    vectors, _ = await embed_texts(request, name, [prompt], None)
    return JSONResponse({"embedding": vectors[0].tolist()})
