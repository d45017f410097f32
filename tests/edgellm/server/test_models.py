"""Several models and little memory: who is unloaded when another is to be loaded."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from running_server import OPTIONS

from edgellm import LLM, AsyncLLM
from edgellm.server.memory import Memory
from edgellm.server.models import ServedModel, ServedModels


class FakeMemory(Memory):
    """Of `size` bytes, of which each loaded model takes 100."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.models: ServedModels

    def needed(self, source: str, options: Mapping[str, Any]) -> int:
        assert options == OPTIONS
        return 100

    def available(self) -> int:
        return self.size - 100 * sum(model.llm is not None for model in self.models.all)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look at the time is a second later than the one before."""
    seconds = iter(range(10**6))
    # Its own name alone: whoever imports the function meanwhile would keep the false one.
    false = SimpleNamespace(monotonic=lambda: float(next(seconds)), time=time.time)
    monkeypatch.setattr("edgellm.server.models.time", false)


def serve(tiny: Path, names: str, size: int) -> ServedModels:
    memory = FakeMemory(size)
    memory.models = ServedModels({name: str(tiny) for name in names}, OPTIONS, memory=memory)
    return memory.models


def loaded(models: ServedModels) -> str:
    return "".join(model.name for model in models.all if model.llm is not None)


def run(work: Coroutine[Any, Any, None], models: ServedModels) -> None:
    async def all_of_it() -> None:
        try:
            await work
        finally:
            await models.close()

    asyncio.run(all_of_it())


async def ask(models: ServedModels, names: str) -> None:
    for name in names:
        async with models.use(name):
            pass


def test_the_longest_idle_one_goes_first(tiny: Path, clock: None) -> None:
    models = serve(tiny, "abcd", 300)

    async def work() -> None:
        await ask(models, "abca")
        assert loaded(models) == "abc"
        await ask(models, "d")
        assert loaded(models) == "acd"
        await ask(models, "b")
        assert loaded(models) == "abd"
        await ask(models, "a")
        assert loaded(models) == "abd", "what is loaded needs nothing"

    run(work(), models)


def test_busy_ones_stay_even_if_it_is_too_little(tiny: Path, clock: None) -> None:
    models = serve(tiny, "abc", 200)

    async def work() -> None:
        async with models.use("a"):
            await ask(models, "b")
            await ask(models, "c")
            assert loaded(models) == "ac"
            async with models.use("c"), models.use("b"):
                assert loaded(models) == "abc", "nothing could go, so it is tried all the same"

    run(work(), models)


def test_two_that_are_loaded_at_once_count_both(tiny: Path, clock: None, monkeypatch: pytest.MonkeyPatch) -> None:
    models = serve(tiny, "abcd", 300)

    async def work() -> None:
        await ask(models, "ab")
        begun = asyncio.Event()
        from edgellm.server import models as module

        load = module.AsyncLLM.load

        async def slow(*arguments: Any, **options: Any) -> Any:
            begun.set()
            await asyncio.sleep(0.2)
            return await load(*arguments, **options)

        monkeypatch.setattr(module.AsyncLLM, "load", slow)
        first = asyncio.create_task(ask(models, "c"))
        await begun.wait()
        assert loaded(models) == "ab"
        await ask(models, "d")
        await first
        assert loaded(models) == "bcd"

    run(work(), models)


def test_one_that_cannot_be_loaded_promises_nothing_for_long(tiny: Path, clock: None) -> None:
    models = serve(tiny, "ab", 1000)
    models.find("b").source = "/no/such.gguf"

    async def work() -> None:
        for _ in range(3):
            with pytest.raises(Exception, match="no/such"):
                await ask(models, "b")
        assert models._promised == 0 and models.find("b").state == "failed"

    run(work(), models)


def test_one_model_alone_is_not_reckoned(tiny: Path) -> None:
    models = serve(tiny, "a", 0)
    run(ask(models, "a"), models)
    assert isinstance(models.default, ServedModel)


def test_what_this_machine_has(tiny: Path) -> None:
    found = LLM.estimate(tiny, **OPTIONS)
    assert Memory().needed(str(tiny), OPTIONS) == found.peak_bytes > 0
    assert Memory().needed(str(tiny), OPTIONS | {"weights": "raw"}) == found.peak_bytes - found.weight_bytes
    assert Memory().needed("/no/such.gguf", OPTIONS) == 0
    assert Memory().available() > 1 << 20


def test_who_leaves_while_a_model_loads_does_not_end_that_for_others(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = ServedModels({"a": str(tiny)}, OPTIONS)
    begun, counted = asyncio.Event(), []
    plain = AsyncLLM.load

    async def slow(*args: Any, **options: Any) -> AsyncLLM:
        counted.append(1)
        begun.set()
        await asyncio.sleep(0.05)
        return await plain(*args, **options)

    monkeypatch.setattr(AsyncLLM, "load", slow)

    async def work() -> None:
        model = models.default
        first, second = asyncio.ensure_future(model.load()), asyncio.ensure_future(model.load())
        await begun.wait()
        first.cancel()
        assert await second is model.llm and model.state == "ready" and len(counted) == 1
        assert first.cancelled() and await model.load() is model.llm
        await model.unload()
        begun.clear()
        third = asyncio.ensure_future(model.load())
        await begun.wait()
        third.cancel()  # nobody waits any more: it is there for who comes next
        while model.llm is None:
            await asyncio.sleep(0.01)
        assert model.state == "ready" and len(counted) == 2
        await model.unload()
        begun.clear()
        fourth = asyncio.ensure_future(model.load())
        await begun.wait()
        await models.close()
        assert fourth.cancelled() or fourth.done()
        assert model.llm is None and model.state == "idle"
        fourth.cancel()

    run(work(), models)
