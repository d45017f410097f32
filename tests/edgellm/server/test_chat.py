"""Chats over HTTP without a client. Cases O05, O12 to O16. `clients/` asks with those of others."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

HI = [{"role": "user", "content": "Hi"}]
LONG = {"messages": HI, "max_tokens": 200, "temperature": 1.5, "seed": 1, "ignore_eos": True}


def ask(client: httpx.Client, **fields: Any) -> httpx.Response:
    return client.post("/v1/chat/completions", json={"messages": HI, "max_tokens": 8, **fields})


def read_events(answer: httpx.Response) -> list[dict[str, Any]]:
    lines = [line.removeprefix("data: ") for line in answer.text.split("\n\n") if line]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


def text_of(client: httpx.Client, body: dict[str, Any]) -> str:
    text: str = client.post("/v1/chat/completions", json=body).json()["choices"][0]["message"]["content"]
    return text


def test_o15_the_shape_of_a_stream(client: httpx.Client) -> None:
    for options, has_usage in (({"include_usage": True}, True), ({"include_usage": False}, False), (None, False)):
        answer = ask(client, stream=True, stream_options=options, ignore_eos=True)
        assert answer.headers["content-type"].startswith("text/event-stream")
        events = read_events(answer)
        assert len({(e["id"], e["created"], e["model"]) for e in events}) == 1
        assert events[0]["choices"][0]["delta"]["role"] == "assistant"
        last = events[-1]
        if has_usage:
            assert last["choices"] == [] and last["usage"]["completion_tokens"] == 8
            assert all(e["usage"] is None for e in events[:-1])
            events = events[:-1]
        assert all("usage" not in e or e["usage"] is None for e in events)
        reasons = [e["choices"][0]["finish_reason"] for e in events]
        assert reasons[:-1] == [None] * (len(events) - 1) and reasons[-1] == "length"
    assert ask(client, stream_options={"include_usage": True}).status_code == 200, "ignored without stream"


@pytest.mark.parametrize(
    ("fields", "tokens"),
    [
        ({"max_tokens": 1}, 1),
        ({"max_completion_tokens": 3, "max_tokens": 50}, 3),
        ({"max_tokens": 3.0}, 3),
        ({"max_tokens": None}, None),
        ({"max_tokens": -1}, None),
        ({"max_tokens": 10**9}, None),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": "5"}, "max_tokens"),
        ({"max_tokens": 2.5}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"max_tokens": -2}, "max_tokens"),
    ],
)
def test_o14_max_tokens(client: httpx.Client, fields: dict[str, Any], tokens: int | str | None) -> None:
    answer = ask(client, ignore_eos=True, **fields)
    if isinstance(tokens, str):
        assert answer.status_code == 400 and answer.json()["error"]["param"] == tokens
        return
    assert answer.status_code == 200
    usage = answer.json()["usage"]
    expected = tokens if tokens is not None else 256 - usage["prompt_tokens"]
    assert abs(usage["completion_tokens"] - expected) <= (0 if tokens else 1)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": "Hi"}, "messages"),
        ({"messages": [1]}, "messages"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": -1}, "temperature"),
        ({"temperature": 10**400}, "temperature"),
        ({"top_p": 7}, "top_p"),
        ({"n": 0}, "n"),
        ({"n": 10**6}, "n"),
        ({"stop": [1]}, "stop"),
        ({"stop": ["x"] * 1000}, "stop"),
        ({"logit_bias": {"a": 1}}, "logit_bias"),
        ({"logit_bias": {"5": 1e9}}, "logit_bias"),
        ({"logit_bias": {"999999": 1}}, "logit_bias"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"stream": "yes"}, "stream"),
        ({"seed": 1.5}, "seed"),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"response_format": "json"}, "response_format"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_wrong_field_is_named_before_the_first_byte(
    client: httpx.Client, fields: dict[str, Any], param: str, stream: bool
) -> None:
    answer = ask(client, **{"stream": stream, **fields})
    error = answer.json()["error"]
    assert answer.status_code == 400 and error["param"] == param and error["type"] == "invalid_request_error"
    assert "\n" not in error["message"] and len(error["message"]) < 400


@pytest.mark.parametrize(
    "fields", [{"user": "me"}, {"metadata": {"a": "b"}}, {"store": False}, {"tools": []}, {"stop": ""}]
)
def test_what_means_nothing_here_is_ignored(client: httpx.Client, fields: dict[str, Any]) -> None:
    assert ask(client, **fields).status_code == 200


@pytest.mark.parametrize("stream", [False, True])
def test_o16_a_prompt_beyond_the_context(client: httpx.Client, stream: bool) -> None:
    answer = ask(client, messages=[{"role": "user", "content": "word " * 600}], stream=stream)
    error = answer.json()["error"]
    assert answer.status_code == 400 and error["code"] == "context_length_exceeded" and "256" in error["message"]


def test_o05_a_conversation_the_template_refuses(client: httpx.Client) -> None:
    for messages in ([{"role": "robot", "content": "x"}], [{"content": "x"}], [{"role": "user", "content": 5}]):
        answer = ask(client, messages=messages)
        assert answer.status_code in (200, 400)
        if answer.status_code == 400:
            assert answer.json()["error"]["message"]


def test_o13_eight_at_once_get_what_they_get_alone(client: httpx.Client, address: str) -> None:
    bodies = [
        {**LONG, "max_tokens": 40, "seed": i, "messages": [{"role": "user", "content": f"word {i} " * i}]}
        for i in range(8)
    ]
    alone = [text_of(client, body) for body in bodies]

    def work(i: int) -> str | None:
        with httpx.Client(base_url=address, timeout=60) as mine:
            if i % 4 == 3:  # gone midway
                with mine.stream("POST", "/v1/chat/completions", json={**bodies[i], "stream": True}) as answer:
                    next(answer.iter_bytes())
                return None
            if i % 2:
                events = read_events(mine.post("/v1/chat/completions", json={**bodies[i], "stream": True}))
                return "".join(e["choices"][0]["delta"].get("content", "") for e in events)
            assert mine.get("/v1/models").status_code == 200
            return text_of(mine, bodies[i])

    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(work, range(8)))
    assert [t for t in together if t is not None] == [a for a, t in zip(alone, together, strict=True) if t is not None]


def open_requests(client: httpx.Client) -> int:
    text = client.get("/metrics").text
    return int(next(line for line in text.splitlines() if line.startswith("edgellm_requests_open ")).split()[1])


@pytest.mark.parametrize("stream", [False, True])
def test_o12_a_client_that_leaves_ends_its_work(client: httpx.Client, address: str, stream: bool) -> None:
    before = text_of(client, {**LONG, "max_tokens": 20})
    with httpx.Client(base_url=address, timeout=0.2) as hasty, pytest.raises(httpx.ReadTimeout):
        body = {**LONG, "max_tokens": None, "n": 16, "stream": stream}
        if stream:
            with hasty.stream("POST", "/v1/chat/completions", json=body) as answer:
                next(answer.iter_bytes())
                raise httpx.ReadTimeout("enough")
        hasty.post("/v1/chat/completions", json=body)
    end = time.monotonic() + 5
    while open_requests(client) and time.monotonic() < end:
        threading.Event().wait(0.05)
    assert open_requests(client) == 0
    assert text_of(client, {**LONG, "max_tokens": 20}) == before
