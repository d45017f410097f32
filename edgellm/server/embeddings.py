"""`POST /v1/embeddings`. Next hop: LLM.embed."""

from __future__ import annotations

import base64

import numpy as np
from numpy.typing import NDArray
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ..llm import LLM
from .answering import Desk, Visit
from .completions import Prompt, read_prompts
from .problems import bad

MAX_TEXTS = 2048
FORMATS = ("float", "base64")


async def embeddings(request: Request) -> Response:
    """A vector for each text."""
    desk: Desk = request.app.state.desk
    fields = await desk.read(request)
    texts = read_prompts(fields, "input", MAX_TEXTS)
    form = fields.text("encoding_format", "float")
    if form not in FORMATS:
        raise bad("encoding_format", form, f"one of {', '.join(FORMATS)}")
    model = fields.text("model")
    desk.models.find(model)
    vectors, count = await embed_texts(request, model, texts, fields.whole("dimensions", 1, 1 << 20))
    data = [
        {"object": "embedding", "index": i, "embedding": _encode(vector) if form == "base64" else vector.tolist()}
        for i, vector in enumerate(vectors)
    ]
    usage = {"prompt_tokens": count, "total_tokens": count}
    return JSONResponse({"object": "list", "data": data, "model": desk.models.find(model).name, "usage": usage})


async def embed_texts(
    request: Request, model: str | None, texts: list[Prompt], dimensions: int | None
) -> tuple[NDArray[np.float32], int]:
    """f32[N, size or dimensions], each row of length 1, and the tokens of all texts."""
    desk: Desk = request.app.state.desk
    async with Visit(desk, request) as visit:
        llm = await visit.open(model)
        vectors = await visit.wait(llm.embed(texts))
        count = await run_in_threadpool(_count, llm.llm, texts)
        visit.done = []
    if dimensions is not None:
        if dimensions > vectors.shape[1]:
            raise bad("dimensions", dimensions, f"at most {vectors.shape[1]}, the width of this model's vectors")
        vectors = vectors[:, :dimensions]
        vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    found: NDArray[np.float32] = vectors.astype("<f4")
    return found, count


def _count(llm: LLM, texts: list[Prompt]) -> int:
    return sum(len(text) if isinstance(text, list) else len(llm.tokenize(text)) for text in texts)


def _encode(vector: NDArray[np.float32]) -> str:
    return base64.b64encode(vector.tobytes()).decode()
