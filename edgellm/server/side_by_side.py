"""Several asynchronous iterators read at once. Knows nothing of what they give."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import TypeVar

Item = TypeVar("Item")


async def side_by_side(sources: Sequence[AsyncIterator[Item]]) -> AsyncIterator[tuple[int, Item | None]]:
    """Yield (number of the source, item) as items come, and (number, None) when a source ends. Raises what one raises.

    One item of each source is waited for at a time, so a slow reader holds all of them up.
    """
    if len(sources) == 1:  # the common case needs no task for each item
        async for only in sources[0]:
            yield 0, only
        yield 0, None
        return
    waiting = {asyncio.ensure_future(_next(source)): number for number, source in enumerate(sources)}
    try:
        while waiting:
            ready, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in sorted(ready, key=lambda task: waiting[task]):
                number, item = waiting.pop(task), task.result()
                yield number, item
                if item is not None:
                    waiting[asyncio.ensure_future(_next(sources[number]))] = number
    finally:
        for task in waiting:
            task.cancel()


async def _next(source: AsyncIterator[Item]) -> Item | None:
    async for item in source:
        return item
    return None
