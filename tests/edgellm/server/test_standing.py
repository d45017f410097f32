"""Priorities and clients over HTTP: who is admitted next is decided by the scheduler, from what a request says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from running_server import OPTIONS
from starlette.requests import Request

from edgellm.scheduler import Scheduler
from edgellm.sequence import Sequence
from edgellm.server.answering import Desk, Visit
from edgellm.server.fields import Fields
from edgellm.server.journal import Record
from edgellm.server.models import ServedModels
from edgellm.server.problems import ApiError
from edgellm.server.settings import ServerSettings
from edgellm.server.standing import client_of

BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2},
    "/v1/completions": {"prompt": "the", "max_tokens": 2},
    "/v1/responses": {"input": "Hi", "max_output_tokens": 2},
    "/api/chat": {"messages": [{"role": "user", "content": "Hi"}], "stream": False, "options": {"num_predict": 2}},
    "/api/generate": {"prompt": "Hi", "stream": False, "options": {"num_predict": 2}},
}


@pytest.mark.parametrize("path", BODIES)
def test_every_route_that_answers_hands_them_on(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    added: list[Sequence] = []
    add = Scheduler.add
    monkeypatch.setattr(Scheduler, "add", lambda self, sequence: (added.append(sequence), add(self, sequence))[1])
    assert client.post(path, json=BODIES[path] | {"priority": -3, "user": "me"}).status_code == 200
    assert client.post(path, json=BODIES[path]).status_code == 200
    assert [(s.priority, s.client) for s in added] == [(-3, "user me"), (0, "address 127.0.0.1")]


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("priority", [1.5, "high", True, 2**31, -(2**40), []])
def test_a_priority_that_is_none(client: httpx.Client, path: str, priority: object) -> None:
    answer = client.post(path, json=BODIES[path] | {"priority": priority})
    assert answer.status_code == 400 and "priority" in answer.text


def test_a_full_queue_lets_in_who_has_nothing_in_it_until_it_is_filled_twice(tiny: Path) -> None:
    def request_by(user: str) -> Request:
        record = Record("", "POST", "/", f"user {user}")
        return Request({"type": "http", "method": "POST", "headers": [], "edgellm.record": record})

    async def work() -> None:
        greedy = [Visit(desk, request_by("greedy")) for _ in range(4)]
        with pytest.raises(ApiError, match="4 requests run and wait already"):
            Visit(desk, request_by("greedy"))
        others = [Visit(desk, request_by(f"other {i}")) for i in range(4)]
        with pytest.raises(ApiError, match="4 requests run and wait already"):
            Visit(desk, request_by("one more"))
        await others.pop().close()
        with pytest.raises(ApiError):
            Visit(desk, request_by("other 0"))
        late = Visit(desk, request_by("one more"))
        for visit in (*greedy, *others, late):
            await visit.close()
        assert desk.num_open == 0 == desk.statistics.num_open

    desk = Desk(ServedModels({"tiny": str(tiny)}, OPTIONS), ServerSettings(max_queue=4))
    asyncio.run(work())


@pytest.fixture
def request_of() -> Callable[..., Request]:
    def make(**headers: str) -> Request:
        raw = [(name.encode(), value.encode()) for name, value in headers.items()]
        return Request({"type": "http", "headers": raw, "client": ("10.0.0.7", 1)})

    return make


def test_whose_a_request_is(request_of: Callable[..., Request]) -> None:
    plain, secret = request_of(), request_of(authorization="Bearer secret")
    assert client_of(plain) == "address 10.0.0.7"
    assert (
        client_of(secret, Fields({"user": None}))
        == client_of(secret)
        != client_of(request_of(authorization="Bearer b"))
    )
    assert "secret" not in client_of(secret)
    assert client_of(secret, Fields({"user": "u" * 10_000})) == "user " + "u" * 128
    assert client_of(plain, Fields({"user": 5})) == "address 10.0.0.7", "other kinds mean nothing here"
