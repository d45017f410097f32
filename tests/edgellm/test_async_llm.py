"""AsyncLLM on a scripted model: many tasks, many loops, every way of leaving. Cases O12, O13."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from scripted_llm import FREE, free_slots, make_llm
from scripted_model import ScriptedBackend

from edgellm import AsyncLLM
from edgellm.errors import EdgeLLMError, OptionError
from edgellm.llm import LLM
from edgellm.stream import MAX_AHEAD

PATIENCE_S = 30


@pytest.fixture
def made() -> Iterator[tuple[AsyncLLM, ScriptedBackend]]:
    llm, backend = make_llm()
    with llm:
        yield AsyncLLM(llm), backend


async def until(condition: Any) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, "it does not come"
        await asyncio.sleep(0.001)


def test_the_same_answers_as_without_asyncio(made: tuple[AsyncLLM, ScriptedBackend]) -> None:
    llm, _ = made
    messages = [{"role": "user", "content": "a"}]

    async def main() -> None:
        done = await llm.generate("a", FREE, max_tokens=90)
        assert done.token_ids == llm.llm.generate("a", FREE, max_tokens=90).token_ids
        stream = llm.stream("a", FREE, max_tokens=90)
        assert stream.completion is None and stream.prefill_progress == (0, 0)
        pieces = [piece async for piece in stream]
        assert "".join(pieces) == done.text and "" not in pieces
        assert stream.completion is not None and stream.completion.token_ids == done.token_ids
        assert [piece async for piece in stream] == []
        chat = await llm.chat(messages, FREE, max_tokens=5)
        assert "".join([piece async for piece in llm.chat_stream(messages, FREE, max_tokens=5)]) == chat.text
        for call in (lambda: llm.generate("a", temperature=-1), lambda: llm.generate([1.0])):  # type: ignore[list-item]
            with pytest.raises(OptionError):
                await call()

    asyncio.run(main())


def test_many_tasks_at_once(made: tuple[AsyncLLM, ScriptedBackend]) -> None:
    llm, _ = made
    expected = [llm.llm.generate("a" * i, FREE, max_tokens=20).text for i in range(1, 9)]

    async def read(i: int) -> str:
        return "".join([piece async for piece in llm.stream("a" * i, FREE, max_tokens=20)])

    async def main() -> list[str]:
        return list(await asyncio.gather(*[read(i) for i in range(1, 9)]))

    found: list[list[str]] = []
    threads = [threading.Thread(target=lambda: found.append(asyncio.run(main()))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert found == [expected] * 3, "one model, three event loops"


def test_every_way_of_leaving_frees_the_place(made: tuple[AsyncLLM, ScriptedBackend]) -> None:
    llm, backend = made

    async def read_on(started: asyncio.Event) -> None:
        async for _ in llm.stream("a", FREE):
            started.set()
            await asyncio.sleep(0)
        await asyncio.sleep(PATIENCE_S)

    async def main() -> None:
        started = asyncio.Event()
        task = asyncio.create_task(read_on(started))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        stream = llm.stream("a", FREE)
        await stream.__anext__()
        await stream.aclose()
        assert stream.completion is not None and stream.completion.finish_reason == "cancelled"
        await stream.aclose()
        async with llm.stream("a", FREE) as stream:
            await stream.__anext__()
        async for _ in llm.stream("a", FREE):
            break
        unused = llm.stream("a", FREE)
        await unused.aclose()
        assert [piece async for piece in unused] == []
        with pytest.raises(EdgeLLMError, match="closed before it began"):
            await unused.finish()
        gc.collect()
        await until(lambda: free_slots(llm.llm) == 3)
        with pytest.raises(asyncio.TimeoutError):
            backend.gate = threading.Event()  # a prompt that takes for ever
            await asyncio.wait_for(llm.generate("a" * 100, FREE), 0.05)
        backend.gate = None
        await until(lambda: free_slots(llm.llm) == 3 and not llm.llm.loaded.engine.has_work)

    asyncio.run(main())


def test_a_slow_reader_holds_its_answer_back_alone(made: tuple[AsyncLLM, ScriptedBackend]) -> None:
    llm, _ = made

    async def main() -> None:
        stream = llm.stream("a", FREE, max_tokens=120)
        text = await stream.__anext__()
        await until(lambda: llm.llm._shared._is_idle)
        assert stream._stream is not None and stream._stream._sequence.num_output <= MAX_AHEAD + 1
        assert len((await llm.generate("b", FREE, max_tokens=50)).token_ids) == 50
        text += "".join([piece async for piece in stream])
        assert text == (await llm.generate("a", FREE, max_tokens=120)).text

    asyncio.run(main())


def test_a_loop_that_is_gone_harms_nobody(made: tuple[AsyncLLM, ScriptedBackend]) -> None:
    llm, _ = made
    left: list[Any] = []

    async def main() -> None:
        left.append(llm.stream("a", FREE))
        await left[0].__anext__()

    asyncio.run(main())
    assert len(llm.llm.generate("b", FREE, max_tokens=60).token_ids) == 60
    left.clear()
    gc.collect()
    assert free_slots(llm.llm) == 3


def test_closing_while_streams_are_open(made: tuple[AsyncLLM, ScriptedBackend]) -> None:
    llm, backend = made

    async def read() -> None:
        async for _ in llm.stream("a", FREE):
            await asyncio.sleep(0.001)

    async def main() -> None:
        tasks = [asyncio.create_task(read()) for _ in range(5)]
        await asyncio.sleep(0.02)
        await llm.close()
        await llm.close()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            assert result is None or "closed" in str(result)
        with pytest.raises(EdgeLLMError, match="closed"):
            await llm.generate("a")

    asyncio.run(main())
    assert backend.is_closed


def test_progress_of_the_prompt_is_told_in_the_loop(made: tuple[AsyncLLM, ScriptedBackend]) -> None:
    llm, _ = made
    told: list[tuple[int, int, int]] = []

    async def main() -> None:
        await llm.generate(
            "a" * 200, FREE, max_tokens=3, on_prefill=lambda *progress: told.append((*progress, threading.get_ident()))
        )

    asyncio.run(main())
    assert told and told[-1][:2] == (201, 201) and {thread for _, _, thread in told} == {threading.get_ident()}


def test_loading(monkeypatch: pytest.MonkeyPatch) -> None:
    llm, backend = make_llm()
    gate, told, threads = threading.Event(), [], []

    def load(model: object, *, progress: Any, **options: Any) -> LLM:
        assert (model, options) == ("m", {"max_context": 5})
        while not gate.is_set():
            progress("load", 1, 2)
            threads.append(threading.get_ident())
            time.sleep(0.001)
        return llm

    monkeypatch.setattr(LLM, "load", load)

    async def main() -> None:
        task = asyncio.create_task(
            AsyncLLM.load("m", max_context=5, progress=lambda *step: told.append((step, threading.get_ident())))
        )
        await until(lambda: told)
        assert not task.done()
        gate.set()
        async with await task as loaded:
            assert loaded.llm is llm
            assert len((await loaded.generate("a", FREE, max_tokens=5)).token_ids) == 5
        assert backend.is_closed
        gate.clear()
        task = asyncio.create_task(AsyncLLM.load("m", max_context=5))
        await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: not [t for t in threading.enumerate() if t.name == "edgellm-load"])

    asyncio.run(main())
    assert {step for step, _ in told} == {("load", 1, 2)}
    assert {thread for _, thread in told} == {threading.get_ident()} and threading.get_ident() not in threads
