"""A client that goes leaves no work behind. Case O12, seen by the engine's own steps and by what holds its cache."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from running_server import OPTIONS, running
from tiny_models import write_tiny

from edgellm.engine import Engine
from edgellm.server.models import ServedModels
from edgellm.server.settings import ServerSettings

STEP_S = 0.01
CHUNK, CONTEXT = 32, 4096
PROBE = {"messages": [{"role": "user", "content": "the and"}], "max_tokens": 12, "temperature": 0}
LONG = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2000, "ignore_eos": True}
READING = {**LONG, "messages": [{"role": "user", "content": "river " * 500}]}
"""Some 3000 tokens: a hundred chunks, a second and more."""


class Watched:
    """A server whose model is slow: each step waits. steps: how many there were, in all."""

    def __init__(self, address: str, engine: Engine) -> None:
        self.address, self.engine, self.steps = address, engine, 0
        self.fresh = self.ask(PROBE)
        forward = engine.runner.forward

        def slowly(batch: Any) -> Any:
            self.steps += 1
            time.sleep(STEP_S)
            return forward(batch)

        engine.runner.forward = slowly  # type: ignore[method-assign]

    def ask(self, body: dict[str, Any]) -> str:
        answer = httpx.post(f"{self.address}/v1/chat/completions", json=body, timeout=60)
        return str(answer.json()["choices"][0]["message"]["content"])

    def send(self, body: dict[str, Any], path: str = "/v1/chat/completions") -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection(self.address.removeprefix("http://"), timeout=60)
        connection.request("POST", path, json.dumps(body).encode(), {"Content-Type": "application/json"})
        return connection

    def wait_for(self, what: Callable[[], bool], seconds: float = 10.0) -> bool:
        end = time.monotonic() + seconds
        while not what() and time.monotonic() < end:
            time.sleep(0.005)
        return what()

    def is_at_rest(self) -> bool:
        found = self.engine.occupancy
        return not (found.running or found.waiting or found.blocks_in_use)

    def check(self) -> None:
        """Its steps end, all is given back, and it answers as a fresh one does."""
        assert self.wait_for(self.is_at_rest, 2.0), f"2 s later there still is {self.engine.occupancy}"
        before = self.steps
        time.sleep(10 * STEP_S)
        assert self.steps == before
        assert self.ask(PROBE) == self.fresh


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    path = write_tiny(Path(tmp_path_factory.mktemp("left")) / "tiny.gguf", vocab=300, context=CONTEXT)
    options = OPTIONS | {"max_context": CONTEXT, "max_sequences": 1, "prefill_chunk": CHUNK}
    served = ServedModels({"tiny": str(path)}, options)
    with running(served, ServerSettings(port=0)) as address:
        while httpx.get(f"{address}/health").status_code != 200:
            threading.Event().wait(0.05)
        llm = served.default.llm
        assert llm is not None
        yield Watched(address, llm.llm.loaded.engine)


def test_o12_after_three_chunks(watched: Watched) -> None:
    connection = watched.send({**LONG, "stream": True})
    answer = connection.getresponse()
    for _ in range(6):
        answer.readline()
    start = watched.steps
    connection.close()
    answer.close()
    watched.check()
    assert watched.steps - start < 300, "of 2000 tokens"


def test_o12_while_the_prompt_is_read(watched: Watched) -> None:
    for stream in (False, True):
        start = watched.steps
        connection = watched.send({**READING, "stream": stream, "seed": int(stream)})
        assert watched.wait_for(lambda start=start: watched.steps > start + 2)  # type: ignore[misc]
        connection.close()
        watched.check()
        assert watched.steps - start < 80, "of a hundred chunks, and an answer of 1000 tokens"


def test_o12_while_it_waits_behind_another(watched: Watched) -> None:
    first = watched.send({**LONG, "stream": True})
    answer = first.getresponse()
    answer.readline()
    second = watched.send(READING)
    assert watched.wait_for(lambda: watched.engine.occupancy.waiting == 1)
    second.close()
    assert watched.wait_for(lambda: watched.engine.occupancy.waiting == 0, 2.0)
    assert watched.engine.occupancy.running == 1, "who came first goes on"
    assert b"data" in answer.readline() + answer.readline()
    first.close()
    answer.close()
    watched.check()


def test_o12_without_a_stream(watched: Watched) -> None:
    start = watched.steps
    connection = watched.send(LONG)
    assert watched.wait_for(lambda: watched.steps > start + 5)
    connection.close()
    watched.check()
    assert watched.steps - start < 300, "of 2000 tokens"


def test_o12_embeddings(watched: Watched) -> None:
    start = watched.steps
    connection = watched.send({"input": ["river " * 20] * 500}, "/v1/embeddings")
    assert watched.wait_for(lambda: watched.steps > start + 5)
    connection.close()
    watched.check()
    assert watched.steps - start < 300, "of 2000 chunks"


def test_o12_before_the_body_is_complete(watched: Watched, caplog: pytest.LogCaptureFixture) -> None:
    for path in ("/v1/chat/completions", "/v1/embeddings", "/tokenize"):
        connection = http.client.HTTPConnection(watched.address.removeprefix("http://"), timeout=60)
        connection.putrequest("POST", path)
        connection.putheader("Content-Type", "application/json")
        connection.putheader("Content-Length", "1000")
        connection.endheaders(b'{"messages": ')
        connection.close()
    watched.check()
    assert not [record for record in caplog.records if record.levelname == "ERROR"], "it is no fault of the server's"
