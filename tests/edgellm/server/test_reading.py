"""llama-server's return_progress: how far a prompt is read, before the first token."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from running_server import OPTIONS, running

from edgellm.server.models import ServedModels
from edgellm.server.settings import ServerSettings


@pytest.fixture(scope="module")
def client(tiny: Path) -> Iterator[httpx.Client]:
    """Of a server that reads prompts in chunks of 16 tokens."""
    models = ServedModels({"tiny": str(tiny)}, OPTIONS | {"prefill_chunk": 16})
    with running(models, ServerSettings(port=0)) as address, httpx.Client(base_url=address, timeout=60) as client:
        yield client


def chunks(client: httpx.Client, path: str, **body: Any) -> list[dict[str, Any]]:
    answer = client.post(path, json={"stream": True, "max_tokens": 3, "temperature": 0, "ignore_eos": True, **body})
    lines = [line.removeprefix("data: ") for line in answer.text.split("\n\n") if line]
    assert answer.status_code == 200 and lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


def progress_of(found: list[dict[str, Any]], index: int = 0) -> list[dict[str, Any]]:
    return [x["prompt_progress"] for x in found if "prompt_progress" in x and x["choices"][0]["index"] == index]


def text_of(found: list[dict[str, Any]]) -> str:
    choices = [choice for x in found for choice in x["choices"]]
    return "".join(choice.get("text") or choice.get("delta", {}).get("content") or "" for choice in choices)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_it_goes_from_the_cache_to_the_end_before_the_first_token(client: httpx.Client, path: str) -> None:
    text = f"{path} " + "and the word " * 12
    body: dict[str, Any] = {"prompt": text, "messages": [{"role": "user", "content": text}]}
    for is_again in (False, True):
        found = chunks(client, path, return_progress=True, stream_options={"include_usage": True}, **body)
        usage, progress = found[-1]["usage"], progress_of(found)
        total, cached = usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]
        assert (cached == total - 1) if is_again else (cached < 16 < total)
        assert {(x["total"], x["cache"]) for x in progress} == {(total, cached)}
        done = [x["processed"] for x in progress]
        assert done == sorted(set(done)) and cached <= done[0] and done[-1] == total
        times = [x["time_ms"] for x in progress]
        assert times == sorted(times) and times[0] >= 0 and all(type(x) is int for x in times)
        says = [
            ("text" in x["choices"][0] and x["choices"][0]["text"]) or x["choices"][0].get("delta", {}).get("content")
            for x in found[:-1]
        ]
        last = max(i for i, x in enumerate(found) if "prompt_progress" in x)
        assert not any(says[: last + 1]) and any(says[last:])
    assert not progress_of(chunks(client, path, **body)), "only where it is asked for"
    plain, told = (text_of(chunks(client, path, return_progress=wants, **body)) for wants in (False, True))
    assert told == plain != "", "pieces may be cut otherwise"


def test_each_answer_has_its_own(client: httpx.Client) -> None:
    found = chunks(client, "/v1/completions", prompt=["a " * 40, "the " * 50], return_progress=True, n=2)
    assert all(
        progress_of(found, index)[-1]["processed"] == progress_of(found, index)[-1]["total"] for index in range(4)
    )
    assert progress_of(found, 0)[0]["total"] != progress_of(found, 2)[0]["total"]


def test_what_it_must_be(client: httpx.Client) -> None:
    body = {"prompt": "the", "max_tokens": 2, "return_progress": "yes"}
    answer = client.post("/v1/completions", json=body)
    assert answer.status_code == 400 and answer.json()["error"]["param"] == "return_progress"
    assert client.post("/v1/completions", json=body | {"return_progress": True}).status_code == 200, (
        "without a stream: nothing"
    )
