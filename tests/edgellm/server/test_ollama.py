"""Ollama's routes, by its own Python client."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx
import ollama
import pytest

HI = [{"role": "user", "content": "Hi"}]
OPTIONS = {"num_predict": 9, "seed": 1, "temperature": 1.0}


@pytest.fixture
def official(address: str) -> Iterator[ollama.Client]:
    client = ollama.Client(host=address)
    yield client
    client._client.close()


def test_a_chat_streamed_or_not_is_that_of_openai(official: ollama.Client, client: httpx.Client) -> None:
    whole = official.chat(model="tiny", messages=HI, options=OPTIONS)
    chunks = list(official.chat(model="tiny:latest", messages=HI, options=OPTIONS, stream=True))
    assert "".join(chunk.message.content or "" for chunk in chunks) == whole.message.content
    assert chunks[-1].done and chunks[-1].eval_count == whole.eval_count and (chunks[-1].total_duration or 0) > 0
    body = {"messages": HI, "max_tokens": 9, "seed": 1, "temperature": 1.0}
    done = client.post("/v1/chat/completions", json=body).json()["choices"][0]["message"]["content"]
    assert done == whole.message.content


def test_generate(official: ollama.Client) -> None:
    raw = official.generate(model="tiny", prompt="the", raw=True, options=OPTIONS)
    pieces = [
        chunk.response
        for chunk in official.generate(model="tiny", prompt="the", raw=True, options=OPTIONS, stream=True)
    ]
    assert "".join(pieces) == raw.response and raw.done_reason in ("stop", "length")
    assert official.generate(model="tiny", prompt="").done_reason == "load"
    told = official.generate(model="tiny", prompt="the", system="Be brief.", options=OPTIONS)
    assert told.prompt_eval_count > raw.prompt_eval_count


def test_a_form_is_kept_to(official: ollama.Client) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "boolean"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    done = official.chat(model="tiny", messages=HI, format=schema, options={"num_predict": 150, "temperature": 0.0})
    assert set(json.loads(done.message.content or "")) == {"a"}


def test_what_there_is(official: ollama.Client) -> None:
    assert [model.model for model in official.list().models] == ["tiny:latest"]
    assert official.show("tiny").template


@pytest.mark.parametrize(
    "body", [{"format": "xml"}, {"options": 3}, {"options": {"temperature": "x"}}, {"suffix": "x"}]
)
def test_a_wrong_field_is_named(client: httpx.Client, body: dict[str, object]) -> None:
    answer = client.post("/api/generate", json={"model": "tiny", "prompt": "the", **body})
    assert answer.status_code == 400 and answer.json()["error"]["message"]
