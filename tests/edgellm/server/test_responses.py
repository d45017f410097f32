"""OpenAI's Responses interface, by the official client."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx
import openai
import pytest


@pytest.fixture
def official(address: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0) as client:
        yield client


ASKED = {"model": "tiny", "input": "Hi", "max_output_tokens": 9, "temperature": 0.0}


def test_streamed_or_not(official: openai.OpenAI, client: httpx.Client) -> None:
    whole = official.responses.create(**ASKED)
    body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 9, "temperature": 0.0}
    chat = client.post("/v1/chat/completions", json=body).json()
    assert whole.output_text == chat["choices"][0]["message"]["content"] != ""
    assert whole.usage is not None and whole.usage.output_tokens == chat["usage"]["completion_tokens"]
    text, kinds, numbers = "", [], []
    for event in official.responses.create(**ASKED, stream=True):
        kinds.append(event.type)
        numbers.append(event.sequence_number)
        if event.type == "response.output_text.delta":
            text += event.delta
    assert text == whole.output_text and numbers == list(range(len(numbers)))
    assert kinds[:4] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
    ]
    assert kinds[-1] == f"response.{whole.status}"


def test_conversations_and_forms(official: openai.OpenAI, client: httpx.Client) -> None:
    said = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
        {"role": "assistant", "content": [{"type": "output_text", "text": "Hello"}]},
        {"role": "user", "content": "the"},
    ]
    done = official.responses.create(**{**ASKED, "input": said})  # type: ignore[call-overload]
    assert done.usage.input_tokens > 20
    schema = {
        "type": "object",
        "properties": {"a": {"type": "boolean"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    form = {"format": {"type": "json_schema", "name": "a", "schema": schema}}
    asked = {**ASKED, "max_output_tokens": 150, "text": form}
    assert set(json.loads(official.responses.create(**asked).output_text)) == {"a"}  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": []}, "input"),
        ({"input": [{"type": "image"}]}, "input"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input"),
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"tools": [{"type": "web_search"}]}, "tools"),
    ],
)
def test_what_is_not_offered_is_said(client: httpx.Client, fields: dict[str, object], param: str) -> None:
    answer = client.post("/v1/responses", json={"input": "Hi", "max_output_tokens": 4, **fields})
    assert answer.status_code == 400 and answer.json()["error"]["param"] == param
