"""Who may ask. Case O28, and bodies that are not what they seem."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from running_server import OPTIONS, running

from edgellm.server.app import ROUTES
from edgellm.server.guard import OPEN_PATHS
from edgellm.server.models import ServedModels
from edgellm.server.settings import ServerSettings

HI = b'{"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}'
JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def keyed(tiny: Path) -> Iterator[httpx.Client]:
    """A server that wants a key."""
    settings = ServerSettings(port=0, api_key="secret")
    with (
        running(ServedModels({"tiny": str(tiny)}, OPTIONS), settings) as address,
        httpx.Client(base_url=address) as client,
    ):
        yield client


def test_o28_a_foreign_page_gets_nothing(client: httpx.Client) -> None:
    for headers in ({"origin": "https://evil.example"}, {"host": "evil.example:8080"}, {"origin": "null"}):
        answer = client.get("/v1/models", headers=headers)
        assert answer.status_code == 403 and "access-control-allow-origin" not in answer.headers
    preflight = {"origin": "https://evil.example", "access-control-request-method": "POST"}
    answer = client.options("/v1/chat/completions", headers=preflight)
    assert answer.status_code == 403 and "access-control-allow-origin" not in answer.headers
    assert client.get("/v1/models", headers={"host": "localhost:1234"}).status_code == 200
    assert client.get("/v1/models", headers={"origin": str(client.base_url).rstrip("/")}).status_code == 200


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", None])
def test_o28_a_form_is_no_request(client: httpx.Client, kind: str | None) -> None:
    headers = {} if kind is None else {"content-type": kind}
    assert client.post("/v1/chat/completions", content=HI, headers=headers).status_code == 415


def test_o28_the_key(serve: Callable[..., Any]) -> None:
    with serve(api_key="secret") as address, httpx.Client(base_url=address) as client:
        for path in ("/v1/models", "/props", "/metrics", "/v1/models/tiny"):
            for headers, status in (
                ({}, 401),
                ({"authorization": "Bearer secreT"}, 401),
                ({"authorization": "Bearer secret"}, 200),
            ):
                assert client.get(path, headers=headers).status_code == status
        assert client.post("/v1/chat/completions", content=HI, headers=JSON).status_code == 401
        assert client.get("/health").status_code in (200, 503)


def test_a_page_that_is_named_may_call(serve: Callable[..., Any]) -> None:
    page = "https://good.example"
    with serve(cors_origins=(page,)) as address, httpx.Client(base_url=address) as client:
        answer = client.get("/v1/models", headers={"origin": page})
        assert answer.status_code == 200 and answer.headers["access-control-allow-origin"] == page
        assert client.get("/v1/models", headers={"origin": "https://evil.example"}).status_code == 403


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"[]", 400),
        (b"null", 400),
        (b'{"messages": NaN}', 400),
        (b"\xff\xfe", 400),
        (HI.decode().encode("utf-16"), 400),
        (b'{"temperature": 1e400, ' + HI[1:], 400),
        (b'{"metadata": {"a": [-1e999]}, ' + HI[1:], 400),
        (b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", 400),
        (b'{"messages": [{"role": "user", "content": "\\ud800"}]}', 400),
        (b'{"max_tokens": 1' + b"0" * 5000 + b', "messages": [{"role": "user", "content": "x"}]}', 400),
    ],
)
def test_a_body_that_is_no_request(client: httpx.Client, body: bytes, status: int) -> None:
    answer = client.post("/v1/chat/completions", content=body, headers=JSON)
    assert answer.status_code == status and answer.json()["error"]["message"]


def test_a_body_that_is_too_large(serve: Callable[..., Any]) -> None:
    with serve(max_body=1000) as address, httpx.Client(base_url=address) as client:
        assert client.post("/tokenize", content=b" " * 1001, headers=JSON).status_code == 413
        chunks = iter([b" " * 600, b" " * 600])  # of no length that is told
        assert client.post("/tokenize", content=chunks, headers=JSON).status_code == 413


def test_too_many_are_told_to_come_again(serve: Callable[..., Any]) -> None:
    body = {
        "messages": [{"role": "user", "content": "Hi"}],
        "max_tokens": 200,
        "ignore_eos": True,
        "stream": True,
        "n": 8,
    }
    with serve(max_queue=1) as address, httpx.Client(base_url=address, timeout=60) as client:  # noqa: SIM117
        with client.stream("POST", "/v1/chat/completions", json=body) as first:
            pieces = first.iter_bytes()  # held: httpx closes an answer whose reader is collected
            next(pieces)
            second = client.post("/v1/chat/completions", content=HI, headers=JSON)
            assert second.status_code == 429 and int(second.headers["retry-after"]) >= 1


def test_what_is_not_there_is_said(client: httpx.Client) -> None:
    for answer in (client.get("/nope"), client.get("/v1/chat/completions"), client.get("/v1/models/../../etc/passwd")):
        assert answer.status_code in (200, 404, 405)
        if answer.status_code != 200:
            assert answer.json()["error"]["message"]


@pytest.mark.parametrize(("method", "path"), [(m, p) for m, p, _ in ROUTES if p not in OPEN_PATHS])
def test_o28_every_route_that_works_needs_the_key(keyed: httpx.Client, method: str, path: str) -> None:
    path = path.replace("{name:path}", "tiny")
    for key, is_right in (
        ("", False),
        ("Bearer", False),
        ("Bearer secre", False),
        ("secret", True),
        ("Bearer secret", True),
    ):
        headers = {"authorization": key} if key else {}
        answer = keyed.request(method, path, headers=headers, json={} if method == "POST" else None)
        assert (answer.status_code != 401) is is_right
        if not is_right:
            error = answer.json()["error"]
            told = error if path.startswith("/api/") else error["message"]  # Ollama's clients read a text
            assert told.startswith("the API key is missing or wrong") and "secret" not in answer.text


@pytest.mark.parametrize(("method", "path"), [(m, p) for m, p, _ in ROUTES])
def test_o28_no_route_answers_a_foreign_page(client: httpx.Client, method: str, path: str) -> None:
    path = path.replace("{name:path}", "tiny")
    for headers in ({"origin": "https://evil.example"}, {"host": "evil.example"}):
        answer = client.request(method, path, headers=headers, json={} if method == "POST" else None)
        assert answer.status_code == 403 and "access-control-allow-origin" not in answer.headers
    if method == "POST":
        for kind in ("text/plain", "text/plain;charset=application/json", "application/json-x"):
            answer = client.post(path, content=b"{}", headers={"content-type": kind})
            assert answer.status_code == 415


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST:80", 200),
        ("127.0.0.1:1", 200),
        ("[::1]:8080", 200),
        ("127.0.0.1.evil.example", 403),
        ("localhost.evil.example:8080", 403),
        ("evil.example@localhost.evil.example", 403),
        ("127.0.0.2", 403),
        ("0.0.0.0", 403),
        ("", 403),
    ],
)
def test_o28_names_that_look_like_the_loopback(client: httpx.Client, host: str, status: int) -> None:
    assert client.get("/v1/models", headers={"host": host}).status_code == status


def test_o28_pages_of_other_ports_of_the_loopback_are_foreign(client: httpx.Client) -> None:
    for origin in ("http://localhost:1", "http://127.0.0.1:1", "file://", "http://[::1]:80"):
        assert client.get("/v1/models", headers={"origin": origin}).status_code == 403
