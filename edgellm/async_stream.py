"""An answer on its way, for asyncio: the engine's thread calls, nobody polls.

Next hops: `stream.py` turns ids into text, `shared_engine.py` makes the calls, `async_llm.py` begins requests.
"""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from types import TracebackType
from typing import Any

from .chat_stream import ChatStream
from .completion import Completion
from .errors import EdgeLLMError
from .sampling import TokenLogprobs
from .stream import PromptProgress, Stream
from .tool_calls import Delta

TOGETHER = 4
"""Pieces of text at most that a reader who is late gets as one: a loop that is behind has the less to do."""
Begin = Callable[[Callable[[], None]], Stream]


class _Tower:
    """Wakes one event loop for all its bells: once a step of the engine, however many answers that takes on."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._rung: deque[asyncio.Event] = deque()
        self._is_called = False

    @staticmethod
    def of_this_loop() -> _Tower:
        """That of the running loop; it lasts as long as a bell does."""
        loop = asyncio.get_running_loop()
        tower = _towers.get(id(loop))
        if tower is None:  # no other loop can have this id: a tower keeps its own
            tower = _towers[id(loop)] = _Tower(loop)
        return tower

    def ring(self, event: asyncio.Event) -> None:
        """Let an event be set, from any thread."""
        self._rung.append(event)
        if self._is_called:
            return  # not heard yet: it will find this one too
        self._is_called = True
        with contextlib.suppress(RuntimeError):  # the loop is closed: the stream ends when it is collected
            self._loop.call_soon_threadsafe(self._hear)

    def _hear(self) -> None:
        self._is_called = False  # before the look: who comes later calls again
        while self._rung:
            self._rung.popleft().set()


_towers: weakref.WeakValueDictionary[int, _Tower] = weakref.WeakValueDictionary()


class _Bell:
    """Rung in any thread, heard in one event loop. Holds no stream: the engine keeps it while the answer lasts."""

    def __init__(self) -> None:
        self._tower = _Tower.of_this_loop()
        self._event = asyncio.Event()
        self._is_rung = False

    def ring(self) -> None:
        if not self._is_rung:  # else not heard yet: a loop that is busy is called once
            self._is_rung = True
            self._tower.ring(self._event)

    async def wait(self) -> None:
        """Return once it has been rung since the last wait."""
        await self._event.wait()
        self._event.clear()
        self._is_rung = False


class AsyncStream:
    """Iterate with `async for` for pieces of text. The request begins at the first one, in the event loop that asks for it.

    completion: the Completion once the answer has ended, None before. Cancelling the task that waits, `aclose`, leaving an
    `async with` block and garbage collection cancel the generation and free its place in the cache.
    """

    def __init__(self, begin: Begin) -> None:
        self._beginning: Begin | None = begin
        self._stream: Stream | None = None
        self._bell: _Bell | None = None
        self._failure: Exception | None = None

    @property
    def completion(self) -> Completion | None:
        return None if self._stream is None else self._stream.completion

    @property
    def logprobs(self) -> list[TokenLogprobs] | None:
        """What the model thought at each id whose text is out, if that was asked for."""
        return None if self._stream is None else self._stream.logprobs

    @property
    def prefill_progress(self) -> tuple[int, int]:
        """(tokens of the prompt that are done, tokens of the prompt); (0, 0) before the first piece is asked for."""
        return (0, 0) if self._stream is None else self._stream.prefill_progress

    def __aiter__(self) -> AsyncStream:
        return self

    async def __anext__(self) -> str:
        """Return the next piece, never an empty one. Raises what `LLM.stream` and its iteration do."""
        if self._stream is None and self._beginning is None:
            raise StopAsyncIteration  # closed before it began
        try:
            stream, bell = await self._start()
            while True:
                if piece := stream.take_ready():
                    return piece
                if stream.completion is not None:
                    break
                await self._wait(stream, bell)
        except BaseException:
            self._cancel()
            raise
        raise StopAsyncIteration

    async def begin(self) -> None:
        """Begin now. Raises what `LLM.stream` does."""
        try:
            await self._start()
        except BaseException:
            self._cancel()
            raise

    async def finish(self) -> Completion:
        """Wait for the end of the answer, however far it is ahead of what was read. -> `completion`."""
        try:
            stream, bell = await self._start()
            stream.read_all()
            while stream.completion is None:
                while stream.take_ready():
                    pass
                await self._wait(stream, bell)
        except BaseException:
            self._cancel()
            raise
        return stream.completion

    async def result(self) -> Any:
        """Stream.result: `completion`, or an instance of the Pydantic model class that was given as schema."""
        await self.finish()
        assert self._stream is not None
        return self._stream.result()

    async def deltas(self) -> AsyncIterator[Delta]:
        """ChatStream.deltas, for chats: text, reasoning, pieces of calls. Text that is there already comes TOGETHER."""
        try:
            stream, bell = await self._start()
            assert isinstance(stream, ChatStream), "only chats have deltas"
            while True:
                while (delta := stream.take_delta()) is not None:
                    for _ in range(TOGETHER - 1):
                        if not delta.content or not (more := stream.take_text()):
                            break
                        delta = replace(delta, content=delta.content + more)
                    yield delta
                if stream.completion is not None:
                    return
                await self._wait(stream, bell)
        except BaseException:
            self._cancel()
            raise

    async def reading(self) -> AsyncIterator[PromptProgress]:
        """Yield how far the prompt is read as that goes on, until there is a first token. The answer is to be read after it."""
        try:
            stream, bell = await self._start()
            told = -1
            while True:
                is_last, progress = not stream.is_reading, stream.prompt_progress
                if progress is not None and progress.processed != told:
                    told = progress.processed
                    yield progress
                if is_last:
                    return
                await self._wait(stream, bell)
        except BaseException:
            self._cancel()
            raise

    def fail(self, error: Exception) -> None:
        """End the answer with an error, which whoever waits for it gets. In the event loop that reads it."""
        self._failure = error
        if self._bell is not None:
            self._bell.ring()

    async def aclose(self) -> None:
        """Cancel the generation; harmless when it has ended or never begun."""
        self._cancel()

    async def __aenter__(self) -> AsyncStream:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self._cancel()

    async def _start(self) -> tuple[Stream, _Bell]:
        if self._stream is None or self._bell is None:
            begin, self._beginning = self._beginning, None
            if begin is None:
                raise EdgeLLMError("this answer was closed before it began, or another task is beginning it")
            bell = self._bell = _Bell()
            # Reading a long prompt and compiling a grammar take time that the event loop must not lose.
            self._stream = await _in_thread(lambda: begin(bell.ring))
        return self._stream, self._bell

    async def _wait(self, stream: Stream, bell: _Bell) -> None:
        if stream.completion is None and self._failure is None:
            await bell.wait()
            stream.tell_prefill()
        if self._failure is not None:
            raise self._failure

    def _cancel(self) -> None:
        self._beginning = None
        if self._stream is not None:
            self._stream.cancel()


async def _in_thread(begin: Callable[[], Stream]) -> Stream:
    """Begin a stream in another thread; if nobody waits for it any more by then, it is cancelled."""
    work = asyncio.get_running_loop().run_in_executor(None, begin)
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        work.add_done_callback(_discard)
        raise


def _discard(work: asyncio.Future[Stream]) -> None:
    if not work.cancelled() and work.exception() is None:
        work.result().cancel()
