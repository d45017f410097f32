"""The models of a server: each is loaded when it is first asked for, and unloaded when nobody has asked for a while.

Knows names and loading, no request. Next hop: `..async_llm`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from ..async_llm import AsyncLLM
from .problems import ApiError

LOOK_S = 1.0
"""How often idle models are looked for."""


class ServedModel:
    """One model. name: what requests call it. source: what LLM.load takes. state: "idle" (not loaded), a stage of loading
    ("fetch", "compile" ...), "ready" or "failed". created: seconds since 1970. busy: requests that use it now."""

    def __init__(self, name: str, source: str, options: Mapping[str, Any]) -> None:
        self.name, self.source, self._options = name, source, dict(options)
        self.state = "idle"
        self.created = int(time.time())
        self.busy = 0
        self.used_s = time.monotonic()
        self.llm: AsyncLLM | None = None
        self._lock = asyncio.Lock()

    async def load(self) -> AsyncLLM:
        """Return the model, loaded now if it is not. Raises what LLM.load does."""
        async with self._lock:
            if self.llm is None:
                self.state = "loading"
                try:
                    self.llm = await AsyncLLM.load(self.source, progress=self._tell, **self._options)
                except BaseException:
                    self.state = "failed"
                    raise
                self.state = "ready"
            return self.llm

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

    def __init__(self, sources: Mapping[str, str], options: Mapping[str, Any], keep_alive: float | None = None) -> None:
        self._models = {name: ServedModel(name, source, options) for name, source in sources.items()}
        self._keep_alive = keep_alive

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

    async def close(self) -> None:
        """Unload all."""
        for model in self.all:
            await model.unload()
