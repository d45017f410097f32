"""A loaded model for asyncio: the same calls as LLM's, awaited. Computing never blocks an event loop.

Next hops: `llm.py`, which does the work; `async_stream.py`, where answers come from.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .async_stream import AsyncStream
from .llm import LLM, Progress
from .stream import Stream


class AsyncLLM:
    """A loaded model, for any number of tasks in any number of event loops. Use it in an `async with` block or close it.

    llm: the LLM that does the work; what does not compute (tokenize, max_context ...) is asked of it directly.
    """

    def __init__(self, llm: LLM) -> None:
        self.llm = llm

    @classmethod
    async def load(
        cls, model: str | os.PathLike[str] = "smollm2", *, progress: Progress | None = None, **options: Any
    ) -> AsyncLLM:
        """Load a model in a thread of its own; options and errors are LLM.load's.

        progress: called with (stage, done, total) in the event loop. Cancelling the task gives the model up: what is
        under way ends at its next step.
        """
        loop = asyncio.get_running_loop()

        def told(stage: str, done: int, total: int) -> None:
            if progress is not None and not loop.is_closed():
                loop.call_soon_threadsafe(progress, stage, done, total)

        loading = LLM.load_in_background(model, progress=told, **options)
        try:
            return cls(await asyncio.wrap_future(loading))
        except asyncio.CancelledError:
            loading.cancel()
            raise

    async def generate(self, prompt: str | Iterable[int], *arguments: Any, **options: Any) -> Any:
        """LLM.generate, a Completion or an instance of schema; cancelling the task cancels the generation."""
        return await self.stream(prompt, *arguments, **options).result()

    def stream(self, prompt: str | Iterable[int], *arguments: Any, **options: Any) -> AsyncStream:
        """LLM.stream, for `async for`. Errors are raised where the first piece is awaited."""
        return self._begin(self.llm.stream, prompt, arguments, options)

    async def chat(self, messages: Iterable[Mapping[str, Any]], *arguments: Any, **options: Any) -> Any:
        """LLM.chat, a Completion or an instance of schema; cancelling the task cancels the generation."""
        return await self.chat_stream(messages, *arguments, **options).result()

    def chat_stream(self, messages: Iterable[Mapping[str, Any]], *arguments: Any, **options: Any) -> AsyncStream:
        """LLM.chat_stream, for `async for`."""
        return self._begin(self.llm.chat_stream, messages, arguments, options)

    async def embed(self, texts: str | Iterable[str | Iterable[int]], **options: Any) -> NDArray[np.float32]:
        """LLM.embed; cancelling the task ends the computing."""
        from .embedding import Job

        job = Job()
        try:
            return await asyncio.get_running_loop().run_in_executor(
                None, lambda: self.llm._embed(texts, job=job, **options)
            )
        except asyncio.CancelledError:
            job.give_up()
            raise

    async def close(self) -> None:
        """LLM.close: answers in flight end with an error."""
        await asyncio.get_running_loop().run_in_executor(None, self.llm.close)

    async def __aenter__(self) -> AsyncLLM:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    @staticmethod
    def _begin(
        call: Callable[..., Stream], what: Any, arguments: tuple[Any, ...], options: Mapping[str, Any]
    ) -> AsyncStream:
        return AsyncStream(lambda ring: call(what, *arguments, on_news=ring, **options))
