"""A name and a line of log for each request."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from edgellm.server.journal import MAX_CONTENT, shortened
from edgellm.server.logs import LOGGERS, configure
from edgellm.server.settings import ServerSettings

BODY: dict[str, Any] = {"messages": [{"role": "user", "content": "a secret"}], "max_tokens": 3, "ignore_eos": True}
PATH = "/v1/chat/completions"


@pytest.fixture
def log() -> Iterator[Callable[..., io.StringIO]]:
    """Configure the log as asked; what it says is in the text that comes back."""
    before = [(logging.getLogger(name), logging.getLogger(name).__dict__.copy()) for name in LOGGERS]

    def begin(form: str = "json", level: str = "info") -> io.StringIO:
        stream = io.StringIO()
        configure(form, level, stream)
        return stream

    yield begin
    for logger, fields in before:
        logger.handlers, logger.propagate = fields["handlers"], fields["propagate"]
        logger.setLevel(fields["level"])


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_for_each_request_without_its_content(client: httpx.Client, log: Callable[..., io.StringIO]) -> None:
    stream = log()
    for is_stream in (False, True):
        answer = client.post(PATH, json=BODY | {"stream": is_stream, "user": "me"}, headers={"x-request-id": "r-1"})
        assert answer.headers["x-request-id"] == "r-1"
    client.post(PATH, json=BODY | {"temperature": "hot"}, headers={"authorization": "Bearer topsecret"})
    client.get("/health")
    one, two, bad = found = lines(stream)
    for line in (one, two):
        assert (line["event"], line["level"], line["id"], line["client"]) == ("request", "info", "r-1", "user me")
        assert (line["method"], line["path"], line["status"], line["model"]) == ("POST", PATH, 200, "tiny")
        assert line["answer_tokens"] == 3 and line["finish_reasons"] == ["length"]
        assert 0 <= line["queued_seconds"] <= line["first_token_seconds"] <= line["seconds"] < 60
        assert line["prompt_tokens"] > line["cached_tokens"] and line["time"].endswith("Z")
    assert two["cached_tokens"] > 0
    assert bad["status"] == 400 and "temperature" in bad["error"] and bad["client"].startswith("key ")
    assert "secret" not in stream.getvalue() and len(found) == 3, "a look at /health is told at debug only"


def test_content_where_it_is_wanted(serve: Callable[..., Any], log: Callable[..., io.StringIO]) -> None:
    stream = log()
    with serve(log_content=True) as address, httpx.Client(base_url=address, timeout=60) as client:
        answer = client.post(PATH, json=BODY).json()
    (found,) = [line for line in lines(stream) if line["event"] == "request"]
    assert found["asked"]["messages"] == BODY["messages"]
    assert found["answered"] == [answer["choices"][0]["message"]["content"]]


def test_a_long_text_is_shortened_and_says_so() -> None:
    assert shortened("a" * MAX_CONTENT) == "a" * MAX_CONTENT
    assert shortened("a" * (MAX_CONTENT + 7)).endswith("a ... and 7 characters more")
    assert isinstance(shortened({"a": "b" * MAX_CONTENT}), str) and shortened({"a": 1}) == {"a": 1}


@pytest.mark.parametrize("given", ["a" * 129, "two words", "", 'quote"', "<b>"])
def test_a_name_that_is_none_is_replaced(client: httpx.Client, given: str) -> None:
    made = client.get("/livez", headers={"x-request-id": given}).headers["x-request-id"]
    assert made != given and len(made) == 32


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/nothing", 404), ("POST", PATH, 415), ("GET", "/livez", 200), ("GET", "/ping", 200)],
)
def test_every_answer_is_named(client: httpx.Client, method: str, path: str, status: int) -> None:
    answer = client.request(method, path, headers={"x-request-id": "abc"})
    assert answer.status_code == status and answer.headers.get_list("x-request-id") == ["abc"]


def test_lines_for_people_hold_nothing_that_ends_them(client: httpx.Client, log: Callable[..., io.StringIO]) -> None:
    stream = log("text", "debug")
    client.get("/v1/models/a%0aINFO%20forged%1b[31m")
    client.post(PATH, json=BODY | {"user": "x\nINFO forged"})
    found = [line for line in stream.getvalue().splitlines() if "/v1/" in line]
    assert len(found) == 2 and "\x1b" not in stream.getvalue()
    assert "INFO POST /v1/chat/completions 200 in" in found[1] and r'client="user x\nINFO forged"' in found[1]
    assert not any(line.startswith("INFO") for line in stream.getvalue().splitlines())


def test_a_bug_is_told_with_its_traceback_and_named(
    serve: Callable[..., Any], log: Callable[..., io.StringIO], monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = log()
    monkeypatch.setattr("edgellm.server.forms.usage", lambda done: 1 // 0)
    with serve() as address, httpx.Client(base_url=address, timeout=60) as client:
        answer = client.post(PATH, json=BODY, headers={"x-request-id": "bug"})
    assert answer.status_code == 500 and answer.headers.get_list("x-request-id") == ["bug"]
    found = lines(stream)
    assert any("ZeroDivisionError" in line.get("traceback", "") for line in found)
    (line,) = [line for line in found if line["event"] == "request"]
    assert (line["level"], line["status"], line["error"]) == ("error", 500, "ZeroDivisionError")


@pytest.mark.parametrize("fields", [{"log_format": "xml"}, {"log_level": "loud"}, {"stop_timeout": -1}])
def test_settings_that_are_none(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(fields))):
        ServerSettings(**fields)
