"""An answer's stream with what llama-server calls `prompt_progress` before it. Knows neither prompts nor answers.

Next hop: `..async_stream`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TypeVar

from ..async_stream import AsyncStream
from ..stream import PromptProgress

Item = TypeVar("Item")


def after_reading(
    stream: AsyncStream, pieces: AsyncIterator[Item], wants_progress: bool
) -> AsyncIterator[Item | PromptProgress]:
    """Yield how far the prompt is read, where that is wanted, then the pieces of the answer."""
    return _reading_first(stream, pieces) if wants_progress else pieces


async def _reading_first(stream: AsyncStream, pieces: AsyncIterator[Item]) -> AsyncIterator[Item | PromptProgress]:
    async for progress in stream.reading():
        yield progress
    async for piece in pieces:
        yield piece
