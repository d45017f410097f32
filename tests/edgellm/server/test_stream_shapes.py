"""The exact shape of streams and of their usage, by the official client and by hand. Case O15; and O14, what is not said."""

from __future__ import annotations

import json
from typing import Any

import httpx
import openai
import pytest

HI = [{"role": "user", "content": "Hi"}]
CHAT: dict[str, Any] = {"messages": HI, "max_tokens": 6, "temperature": 0, "ignore_eos": True}
TEXT: dict[str, Any] = {"prompt": "the", "max_tokens": 6, "temperature": 0, "ignore_eos": True}
ROUTES = [("/v1/chat/completions", CHAT, "chat.completion.chunk"), ("/v1/completions", TEXT, "text_completion")]
OPTIONS = [{"include_usage": True}, {"include_usage": False}, {"include_usage": None}, {}, None]


def chunks_of(client: httpx.Client, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    """Read a stream byte by byte as an SSE reader does: events end with an empty line, each is one line of data."""
    answer = client.post(path, json={**body, "stream": True})
    assert answer.status_code == 200 and answer.headers["content-type"].partition(";")[0] == "text/event-stream"
    *events, rest = answer.text.split("\n\n")
    assert rest == "" and all(event.startswith("data: ") and "\n" not in event for event in events)
    assert events[-1] == "data: [DONE]" and events.count("data: [DONE]") == 1
    return [json.loads(event.removeprefix("data: ")) for event in events[:-1]]


@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize(("path", "body", "kind"), ROUTES)
def test_o15_every_chunk(
    client: httpx.Client, path: str, body: dict[str, Any], kind: str, options: dict[str, Any] | None, n: int
) -> None:
    body = {**body, "n": n}
    chunks = chunks_of(client, path, {**body, "stream_options": options})
    wants_usage = bool((options or {}).get("include_usage"))
    assert len({(c["id"], c["created"], c["model"], c["object"]) for c in chunks}) == 1 and chunks[0]["object"] == kind
    if wants_usage:
        last = chunks.pop()
        assert last["choices"] == [] and last["usage"] == client.post(path, json=body).json()["usage"] | {
            "prompt_tokens_details": last["usage"]["prompt_tokens_details"]
        }
        assert all(c["usage"] is None for c in chunks)
    else:
        assert all("usage" not in c for c in chunks)
    for index in range(n):
        mine = [c["choices"][0] for c in chunks if c["choices"][0]["index"] == index]
        assert [c["finish_reason"] for c in mine] == [None] * (len(mine) - 1) + ["length"]
        if path.endswith("chat/completions"):
            assert mine[0]["delta"] == {"role": "assistant", "content": ""} and mine[-1]["delta"] == {}
            assert all(set(c["delta"]) == {"content"} and c["delta"]["content"] for c in mine[1:-1])
        else:
            assert mine[-1]["text"] == "" and all(c["text"] for c in mine[:-1])
    assert all(len(c["choices"]) == 1 for c in chunks)


@pytest.mark.parametrize("options", [{"include_usage": True}, {"include_usage": False}, None])
def test_o15_by_the_official_client(address: str, client: httpx.Client, options: Any) -> None:
    whole = client.post("/v1/chat/completions", json=CHAT).json()
    asked: dict[str, Any] = {key: value for key, value in CHAT.items() if key != "ignore_eos"}
    with openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0) as official:
        stream = official.chat.completions.create(
            model="tiny", stream=True, stream_options=options, extra_body={"ignore_eos": True}, **asked
        )
        chunks = list(stream)
        text = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
        usages = [chunk.usage for chunk in chunks if chunk.usage is not None]
    assert text == whole["choices"][0]["message"]["content"]
    if options and options["include_usage"]:
        assert [usage.total_tokens for usage in usages] == [whole["usage"]["total_tokens"]] and not chunks[-1].choices
    else:
        assert usages == []


def test_o15_options_of_a_stream_without_one(client: httpx.Client) -> None:
    for path, body, _ in ROUTES:
        answer = client.post(path, json={**body, "stream_options": {"include_usage": True}})
        assert answer.status_code == 200 and answer.json()["usage"]["completion_tokens"] == 6


@pytest.mark.parametrize("fields", [{}, {"max_tokens": None}, {"max_completion_tokens": None, "max_tokens": None}])
@pytest.mark.parametrize("stream", [False, True])
def test_o14_nothing_said_of_the_length(client: httpx.Client, fields: dict[str, Any], stream: bool) -> None:
    """A chat goes on to the end of the context, a completion to OpenAI's 16; a prompt that is too long is one error."""
    chat = {"messages": HI, "ignore_eos": True, "stream": stream, "stream_options": {"include_usage": True}, **fields}
    text = {**TEXT, "stream": stream, "stream_options": {"include_usage": True}, **fields}
    if "max_tokens" not in fields:
        del text["max_tokens"]
    for path, body in (("/v1/chat/completions", chat), ("/v1/completions", text)):
        answer = client.post(path, json=body)
        assert answer.status_code == 200
        usage = (json.loads(answer.text.split("\n\n")[-3].removeprefix("data: ")) if stream else answer.json())["usage"]
        if path == "/v1/completions":
            assert usage["completion_tokens"] == 16
        else:
            assert 255 <= usage["total_tokens"] <= 257, "the context"
    far = client.post("/v1/chat/completions", json={**chat, "messages": [{"role": "user", "content": "a b " * 400}]})
    assert far.status_code == 400 and far.json()["error"]["code"] == "context_length_exceeded"


@pytest.mark.parametrize("value", [0, "5", 2.5, True, -2, [], {}, 1 << 40])
def test_o14_the_name_that_was_sent_is_named(client: httpx.Client, value: object) -> None:
    for path, body, name in (
        ("/v1/chat/completions", CHAT, "max_completion_tokens"),
        ("/v1/completions", TEXT, "max_tokens"),
        ("/v1/responses", {"input": "Hi"}, "max_output_tokens"),
    ):
        answer = client.post(path, json={**body, name: value})
        error = answer.json()["error"]
        assert answer.status_code == 400 and error["param"] == name and error["message"].startswith(f"{name} ")
