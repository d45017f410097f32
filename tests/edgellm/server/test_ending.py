"""How the server ends: by a fake clock, in a thread, and as a process that gets signals."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from running_server import OPTIONS

from edgellm.server.ending import CUT_S, Ending
from edgellm.server.models import ServedModels
from edgellm.server.serving import Server, listen
from edgellm.server.settings import ServerSettings

HI = [{"role": "user", "content": "Hi"}]
LONG: dict[str, Any] = {"messages": HI, "temperature": 1.5, "seed": 1, "ignore_eos": True}


class Fake:
    """A desk and a clock."""

    def __init__(self) -> None:
        self.is_ending, self.num_open, self.num_cuts, self.now = False, 2, 0, 100.0

    def cut(self) -> None:
        self.num_cuts += 1


def test_what_runs_may_finish_and_then_it_is_over() -> None:
    desk = Fake()
    ending = Ending(desk, 30, lambda: desk.now)
    assert not ending.is_over() and not desk.is_ending
    ending.ask()
    assert not ending.is_over() and desk.is_ending
    desk.now += 29
    assert not ending.is_over()
    desk.num_open = 0
    assert ending.is_over() and not desk.num_cuts


def test_what_is_late_is_cut_once_and_waited_for_a_little() -> None:
    desk = Fake()
    ending = Ending(desk, 30, lambda: desk.now)
    ending.ask()
    ending.is_over()
    desk.now += 30
    assert not ending.is_over() and desk.num_cuts == 1
    desk.now += CUT_S / 2
    assert not ending.is_over()
    desk.now += CUT_S
    assert ending.is_over() and desk.num_cuts == 1


def test_asked_twice_it_cuts_at_once() -> None:
    desk = Fake()
    ending = Ending(desk, 30, lambda: desk.now)
    ending.ask()
    ending.ask()
    assert not ending.is_over() and desk.num_cuts == 1
    desk.num_open = 0
    assert ending.is_over()


@contextmanager
def served(tiny: Path, **settings: Any) -> Iterator[tuple[httpx.Client, Server]]:
    """A server in a thread, whose context holds an answer of some seconds."""
    checked = ServerSettings(port=0, **settings)
    listener = listen(checked)
    options = OPTIONS | {"max_context": 20_000, "max_sequences": 2, "spec": "off"}
    server = Server(ServedModels({"tiny": str(tiny)}, options), checked)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])))
    thread.start()
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{listener.getsockname()[1]}", timeout=60) as client:
            for _ in range(400):
                if client.get("/health").status_code == 200:
                    break
                threading.Event().wait(0.05)
            yield client, server
    finally:
        for _ in range(3):
            server.handle_exit(signal.SIGTERM, None)
        thread.join(20)
        assert not thread.is_alive()


def wait_for(condition: Any, seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)
    assert condition()


def test_answers_finish_and_new_ones_are_sent_away(tiny: Path) -> None:
    with served(tiny) as (client, server), ThreadPoolExecutor(2) as pool:
        body = {**LONG, "max_tokens": 1500}
        running = pool.submit(client.post, "/v1/chat/completions", json=body)
        wait_for(lambda: server.config.app.state.desk.num_open)  # type: ignore[union-attr]
        server.handle_exit(signal.SIGTERM, None)
        wait_for(lambda: client.get("/health").status_code == 503)
        assert client.get("/health").json() == {"status": "ending"} and client.get("/livez").status_code == 200
        refused = client.post("/v1/chat/completions", json=body)
        assert refused.status_code == 503 and int(refused.headers["retry-after"]) > 0
        assert refused.json()["error"]["type"] == "server_error"
        assert running.result().json()["usage"]["completion_tokens"] == 1500
        wait_for(lambda: not server.started or server.ending.is_over())


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/v1/responses", "/api/chat"])
@pytest.mark.parametrize("is_asked_twice", [True, False])
def test_what_is_cut_says_so(tiny: Path, path: str, is_asked_twice: bool) -> None:
    if is_asked_twice != (path == "/v1/chat/completions"):
        return  # a server each takes a second
    body: dict[str, Any] = {
        **LONG,
        "prompt": "Hi",
        "input": "Hi",
        "options": {"num_predict": 15_000, "ignore_eos": True},
    }
    body |= {"max_tokens": 15_000, "max_output_tokens": 15_000}
    with served(tiny, stop_timeout=30 if is_asked_twice else 0.3) as (client, server), ThreadPoolExecutor(2) as pool:
        with client.stream("POST", path, json={**body, "stream": True}) as answer:
            whole = pool.submit(client.post, path, json={**body, "stream": False})
            wait_for(lambda: server.config.app.state.desk.num_open == 2)  # type: ignore[union-attr]
            start = time.monotonic()
            for _ in range(1 + is_asked_twice):
                server.handle_exit(signal.SIGTERM, None)
            text = answer.read().decode()
        done = whole.result()
        assert time.monotonic() - start < 10
        assert done.status_code == 503 and "this answer was cut" in done.text
        assert "this answer was cut" in text.strip().removesuffix("data: [DONE]").strip().splitlines()[-1]
        if path.startswith("/v1/chat"):
            events = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
            assert events[-1] == "[DONE]" and json.loads(events[-2])["error"]["type"] == "server_error"
            assert not any(json.loads(e)["choices"][0]["finish_reason"] for e in events[:-2]), "no end that was none"


def test_a_stream_is_bounded_in_time_too(tiny: Path) -> None:
    with served(tiny, request_timeout=0.5) as (client, _):
        body = {**LONG, "max_tokens": 15_000}
        for stream in (True, False):
            start = time.monotonic()
            answer = client.post("/v1/chat/completions", json={**body, "stream": stream})
            assert "(--request-timeout)" in answer.text and time.monotonic() - start < 10
            assert answer.status_code == (200 if stream else 504)
        assert client.post("/v1/chat/completions", json={**LONG, "max_tokens": 2}).status_code == 200


@pytest.mark.skipif(os.name != "posix", reason="signals are sent as POSIX has them")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_process_that_gets_a_signal(tiny: Path, number: signal.Signals, code: int) -> None:
    words = ["serve", str(tiny), "--port", "0", "--threads", "1", "--max-context", "2000", "--log-format", "json"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-m", "edgellm", *words], stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stderr is not None
        found = re.search(r"http://\S+(?=/v1)", json.loads(process.stderr.readline())["message"])
        assert found is not None
        with (
            httpx.Client(base_url=found[0], timeout=60) as client,
            client.stream("POST", "/v1/chat/completions", json={**LONG, "max_tokens": 500, "stream": True}) as answer,
        ):
            pieces = answer.iter_text()
            next(pieces)
            process.send_signal(number)
            rest = "".join(pieces)
        assert process.wait(30) == code
        assert '"finish_reason":"length"' in rest and "error" not in rest
        lines = [json.loads(line) for line in process.stderr.read().splitlines()]
    assert all(line["time"] and line["level"] for line in lines), "every line is an object"
    done = [line for line in lines if line["event"] == "request"]
    assert [(x["path"], x["status"], x["answer_tokens"]) for x in done] == [("/v1/chat/completions", 200, 500)]
