"""The models of a server: each is loaded when it is first asked for, and unloaded when nobody has asked for a while, or when
another needs its memory.

Knows names and loading, no request. Next hops: `memory.py`, `..async_llm`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from ..async_llm import AsyncLLM
from .memory import Memory
from .problems import ApiError

log = logging.getLogger("edgellm.server")

LOOK_S = 1.0
"""How often idle models are looked for."""


class ServedModel:
    """One model. name: what requests call it. source: what LLM.load takes. state: "idle" (not loaded), a stage of loading
    ("fetch", "compile" ...), "ready" or "failed". created: seconds since 1970. busy: requests that use it now. room: makes room
    for it, and keeps that while it is loaded."""

    def __init__(
        self,
        name: str,
        source: str,
        options: Mapping[str, Any],
        room: Callable[[ServedModel], AbstractAsyncContextManager[None]],
    ) -> None:
        self.name, self.source, self.options = name, source, dict(options)
        self._room = room
        self.state = "idle"
        self.created = int(time.time())
        self.busy = 0
        self.used_s = time.monotonic()
        self.llm: AsyncLLM | None = None
        self._lock = asyncio.Lock()
        self._loading: asyncio.Task[AsyncLLM] | None = None

    async def load(self) -> AsyncLLM:
        """Return the model, loaded now if it is not. Raises what LLM.load does.

        Who gives up waiting does not end the loading: others wait for it, or the same one comes again.
        """
        if self.llm is not None:
            return self.llm
        if self._loading is None:
            self._loading = asyncio.ensure_future(self._load())
            self._loading.add_done_callback(self._loaded)
        return await asyncio.shield(self._loading)

    async def _load(self) -> AsyncLLM:
        async with self._lock:
            if self.llm is None:
                self.state = "loading"
                try:
                    async with self._room(self):
                        self.llm = await AsyncLLM.load(self.source, progress=self._tell, **self.options)
                except asyncio.CancelledError:  # the server ends
                    self.state = "idle"
                    raise
                except BaseException:
                    self.state = "failed"
                    raise
                self.state, self.used_s = "ready", time.monotonic()
            return self.llm

    def _loaded(self, loading: asyncio.Task[AsyncLLM]) -> None:
        self._loading = None
        if not loading.cancelled():
            loading.exception()  # told to who still waits, if anybody does

    async def close(self) -> None:
        """Unload it, and load it no further if it is on its way."""
        if self._loading is not None:
            self._loading.cancel()
            await asyncio.gather(self._loading, return_exceptions=True)
        await self.unload()

    async def unload(self) -> None:
        """Give its memory back; answers in flight end with an error."""
        async with self._lock:
            if self.llm is not None:
                llm, self.llm, self.state = self.llm, None, "idle"
                await llm.close()

    def _tell(self, stage: str, done: int, total: int) -> None:
        if self.state != "ready":
            self.state = stage


class ServedModels:
    """All models of a server. sources: {name: what LLM.load takes}, the first is the default. options: of LLM.load."""

    def __init__(
        self,
        sources: Mapping[str, str],
        options: Mapping[str, Any],
        keep_alive: float | None = None,
        memory: Memory | None = None,
    ) -> None:
        self._models = {name: ServedModel(name, source, options, self._room) for name, source in sources.items()}
        self._keep_alive = keep_alive
        self._memory = memory if memory is not None else Memory()
        self._promised = 0  # bytes that models need which are loaded just now

    @property
    def all(self) -> list[ServedModel]:
        """In the order they were named."""
        return list(self._models.values())

    @property
    def default(self) -> ServedModel:
        """Who answers where a request names no model."""
        return next(iter(self._models.values()))

    def find(self, name: str | None) -> ServedModel:
        """The model of a name; the only one there is answers to every name, as llama-server's does."""
        if not name or len(self._models) == 1:
            return self.default
        if name not in self._models:
            known = ", ".join(self._models)
            raise ApiError(
                404, f"no model is called {name!r} here; there are {known}", param="model", code="model_not_found"
            )
        return self._models[name]

    @asynccontextmanager
    async def use(self, name: str | None) -> AsyncIterator[AsyncLLM]:
        """Have a model, loaded, for one request."""
        model = self.find(name)
        model.busy += 1
        try:
            yield await model.load()
        finally:
            model.busy -= 1
            model.used_s = time.monotonic()

    async def unload_idle(self) -> None:
        """Unload what nobody has asked for in `keep_alive` seconds, for ever."""
        while self._keep_alive is not None:
            await asyncio.sleep(min(LOOK_S, self._keep_alive / 2))
            for model in self.all:
                if model.llm is not None and not model.busy and time.monotonic() - model.used_s > self._keep_alive:
                    await model.unload()

    @asynccontextmanager
    async def _room(self, model: ServedModel) -> AsyncIterator[None]:
        """Have memory for a model, as far as unloading others can do it: the longest idle one first, busy ones never."""
        others = [other for other in self.all if other is not model]
        if not others:
            yield
            return
        loop = asyncio.get_running_loop()
        needed = await loop.run_in_executor(None, self._memory.needed, model.source, model.options)
        self._promised += needed
        try:
            while self._memory.available() < self._promised:
                idle = [other for other in others if other.llm is not None and not other.busy]
                if not idle:
                    break  # loading may still find a way, or says what it lacks
                longest = min(idle, key=lambda other: other.used_s)
                log.info("%s is unloaded: %s needs its memory", longest.name, model.name)
                await longest.unload()
            yield
        finally:
            self._promised -= needed

    async def close(self) -> None:
        """Unload all."""
        for model in self.all:
            await model.close()
