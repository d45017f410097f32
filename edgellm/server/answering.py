"""An HTTP request that is answered by a model: admitted or sent away, watched for a client that leaves, bounded in time.

Knows no route's fields. Next hops: `chat.py`, `completions.py`; `..async_stream` for answers on their way.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable
from contextlib import AsyncExitStack
from typing import Any, TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from ..async_llm import AsyncLLM
from ..async_stream import AsyncStream
from ..completion import Completion
from .fields import Fields, read_object
from .forms import DONE, compact, event
from .journal import record_of, shortened
from .models import ServedModels
from .problems import ApiError, client_gone, from_error
from .settings import ServerSettings
from .standing import client_of
from .statistics import Statistics

Result = TypeVar("Result")
LARGE_BODY = 1 << 18
LOOK_S = 0.1
"""How often it is looked whether a client is still there."""


class Desk:
    """Where requests are taken: what all routes share."""

    def __init__(self, models: ServedModels, settings: ServerSettings) -> None:
        self.models, self.settings = models, settings
        self.is_ending = False
        self.visits: set[Visit] = set()
        self.statistics = Statistics(lambda: self.num_open)

    @property
    def num_open(self) -> int:
        """Requests that run or wait."""
        return len(self.visits)

    def cut(self) -> None:
        """End all requests with an error that says why."""
        for visit in list(self.visits):
            visit.cut(ApiError(503, "the server is ending, and this answer was cut", headers={"Retry-After": "5"}))

    async def read(self, request: Request) -> Fields:
        """The fields of a request's body."""
        try:
            body = await request.body()
        except ClientDisconnect:
            raise client_gone() from None
        if len(body) > LARGE_BODY:  # others are not to wait for a stranger's megabytes
            fields = await run_in_threadpool(read_object, body, self.settings.max_nesting)
        else:
            fields = read_object(body, self.settings.max_nesting)
        request.state.given = fields.values.keys()  # for what goes wrong later
        record = record_of(request)
        record.client = client_of(request, fields)
        if self.settings.log_content:
            record.asked = shortened(fields.values)
        return fields

    def admit(self, client: str) -> None:
        """See whether one more request may come in. Raises ApiError where there are too many, or the server ends.

        A client that has no other request here still gets in where others fill the queue, until it is filled twice.
        """
        if self.is_ending:
            raise ApiError(503, "the server is ending", headers={"Retry-After": "5"})
        is_new = all(visit.client != client for visit in self.visits)
        if self.num_open >= self.settings.max_queue * (2 if is_new else 1):
            self.statistics.refused += 1
            raise ApiError(
                429,
                f"{self.settings.max_queue} requests run and wait already, the limit (--max-queue); try again later",
                headers={"Retry-After": "1"},
            )


class Visit:
    """One request from its admission to its end, however that comes: of the `async with` block it is used in, or of the answer
    that it was handed over to. client: whose it is. done: what it was answered."""

    def __init__(self, desk: Desk, request: Request) -> None:
        self.client = record_of(request).client
        desk.admit(self.client)
        self._desk, self._request = desk, request
        self._stack = AsyncExitStack()
        self._is_open, self._is_handed_over = True, False
        self._streams: list[AsyncStream] = []
        self._error: ApiError | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._start_s = asyncio.get_running_loop().time()
        desk.visits.add(self)
        self.done: list[Completion] | None = None

    async def __aenter__(self) -> Visit:
        return self

    async def __aexit__(self, *error: object) -> None:
        if not self._is_handed_over:
            await self.close()

    def hand_over(self) -> None:
        """Leave it to an answer that comes piece by piece to close it."""
        self._is_handed_over = True
        if (timeout := self._desk.settings.request_timeout) is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(self._start_s + timeout, self.cut, _too_late(timeout))

    def note_error(self, error: ApiError) -> None:
        """For the log."""
        record_of(self._request).error = error.message

    def cut(self, error: ApiError) -> None:
        """End it with an error."""
        self._error = error
        for stream in self._streams:
            stream.fail(error)

    async def open(self, model: str | None) -> AsyncLLM:
        """The model, loaded now if need be."""
        record_of(self._request).model = self._desk.models.find(model).name
        return await self.wait(self._stack.enter_async_context(self._desk.models.use(model)))

    async def begin(self, streams: list[AsyncStream]) -> list[AsyncStream]:
        """Begin answers: what is wrong with the request is raised here, before the first byte of an answer."""
        self._streams = streams
        for stream in streams:
            self._stack.push_async_callback(stream.aclose)
        for stream in streams:
            await self.wait(stream.begin())
        return streams

    async def finish(self, streams: list[AsyncStream]) -> list[Completion]:
        """Wait for all answers."""
        self.done = await self.wait(_finish_all(streams))
        return self.done

    async def wait(self, work: Awaitable[Result]) -> Result:
        """Wait for work as long as the client waits too. Raises ApiError if that goes, or takes too long."""
        task = asyncio.ensure_future(work)
        timeout, loop = self._desk.settings.request_timeout, asyncio.get_running_loop()
        end = math.inf if timeout is None else loop.time() + timeout
        try:
            while not task.done():
                await asyncio.wait([task], timeout=LOOK_S)
                if not task.done() and await self._request.is_disconnected():
                    raise client_gone()
                if not task.done() and self._error is not None:
                    raise self._error
                if not task.done() and loop.time() > end:
                    assert timeout is not None
                    raise _too_late(timeout)
            return task.result()
        finally:
            task.cancel()

    async def close(self) -> None:
        """End what is still on its way; harmless when repeated."""
        if self._is_open:
            self._is_open = False
            self._desk.visits.discard(self)
            if self._timer is not None:
                self._timer.cancel()
            self._note()
            self._desk.statistics.note(self.done)
            await self._stack.aclose()

    def _note(self) -> None:
        record = record_of(self._request)
        record.done = self.done
        if self.done is None and self._is_handed_over and record.error is None:
            record.error = "the client is gone"
        if self._desk.settings.log_content and self.done:
            record.answered = [shortened(one.raw_text) for one in self.done]


def _too_late(timeout: float) -> ApiError:
    return ApiError(504, f"the answer took longer than {timeout:g} seconds, the limit (--request-timeout)")


async def _finish_all(streams: list[AsyncStream]) -> list[Completion]:
    """If one fails, or this is cancelled, the others end too."""
    tasks = [asyncio.ensure_future(stream.finish()) for stream in streams]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()


class Pieces(StreamingResponse):
    """An answer piece by piece, and the visit that ends with it; an error on the way becomes the last piece."""

    def __init__(self, pieces: AsyncIterator[dict[str, Any]], visit: Visit) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(self._bytes(pieces), media_type=self.media_type, headers=headers)
        self._visit = visit
        visit.hand_over()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._visit.close()

    async def _bytes(self, pieces: AsyncIterator[dict[str, Any]]) -> AsyncIterator[bytes]:
        try:
            async for data in pieces:
                yield self.pack(data)
        except Exception as error:
            found = from_error(error)
            self._visit.note_error(found)
            yield self.pack(self.shape_of(found))
        yield self.end

    end = b""

    @staticmethod
    def pack(data: dict[str, Any]) -> bytes:
        """The bytes of a piece."""
        raise NotImplementedError

    @staticmethod
    def shape_of(error: ApiError) -> dict[str, Any]:
        """What says that it went wrong."""
        return error.as_dict()


class Events(Pieces):
    """Server-sent events, as OpenAI has them."""

    media_type, end = "text/event-stream", DONE
    pack = staticmethod(event)


class Lines(Pieces):
    """Lines of JSON, as Ollama has them."""

    media_type = "application/x-ndjson"

    @staticmethod
    def pack(data: dict[str, Any]) -> bytes:
        """See Pieces."""
        return compact(data).encode() + b"\n"

    @staticmethod
    def shape_of(error: ApiError) -> dict[str, Any]:
        """See Pieces."""
        return {"error": error.message}
