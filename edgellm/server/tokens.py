"""`/tokenize`, `/detokenize`, `/apply-template`: llama-server's small routes. Next hop: LLM's own methods."""

from __future__ import annotations

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from .answering import Desk
from .problems import ApiError, bad


async def tokenize(request: Request) -> Response:
    """A text's ids."""
    desk: Desk = request.app.state.desk
    fields = await desk.read(request)
    text = fields.text("content")
    if text is None:
        raise bad("content", None, "a text")
    special, parse = fields.flag("add_special"), fields.flag("parse_special", True)
    async with desk.models.use(fields.text("model")) as llm:
        tokenizer = llm.llm.tokenizer
        ids = await run_in_threadpool(lambda: list(tokenizer.encode(text, add_bos=special, special=parse)))
    return JSONResponse({"tokens": ids})


async def detokenize(request: Request) -> Response:
    """The text of ids."""
    desk: Desk = request.app.state.desk
    fields = await desk.read(request)
    ids = fields.get("tokens")
    if not isinstance(ids, list) or not all(type(i) is int for i in ids):
        raise bad("tokens", ids, "a list of token ids")
    async with desk.models.use(fields.text("model")) as llm:
        text = await run_in_threadpool(lambda: llm.llm.detokenize(ids, special=True))
    return JSONResponse({"content": text})


async def apply_template(request: Request) -> Response:
    """The prompt that a conversation becomes."""
    desk: Desk = request.app.state.desk
    fields = await desk.read(request)
    messages, tools = fields.objects("messages"), fields.objects("tools")
    if not messages:
        raise bad("messages", fields.get("messages"), "a list of at least one message")
    async with desk.models.use(fields.text("model")) as llm:
        template = llm.llm.loaded.template
        if template is None:
            raise ApiError(400, "this model has no chat template")
        ids = await run_in_threadpool(lambda: template.render_ids(messages, tools=tools))
        return JSONResponse({"prompt": llm.llm.detokenize(ids, special=True)})
