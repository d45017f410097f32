"""LiteLLM, by its way to servers that speak OpenAI's interface."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import jsonschema
import pytest
from asked_of_clients import FORM, HI, LONG, SCHEMA, TOOL, WEATHER, WEATHER_TOLD, letter_of

pytestmark = [
    pytest.mark.clients,
    pytest.mark.filterwarnings("ignore"),  # its own affairs: typing, connections left to the garbage collector
]


@pytest.fixture
def chat(address: str) -> dict[str, Any]:
    """A conversation with a server."""
    server = {"api_base": f"{address}/v1", "api_key": "none", "max_retries": 0}
    return {"model": "openai/tiny", **server, "messages": HI, "max_tokens": 12, "seed": 21, "temperature": 1.0}


def test_a_chat_is_the_same_streamed_or_not(litellm: Any, chat: dict[str, Any]) -> None:
    whole = litellm.completion(**chat)
    chunks = list(litellm.completion(**chat, stream=True, stream_options={"include_usage": True}))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content != ""
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens > 0
    rebuilt = litellm.stream_chunk_builder(chunks)
    assert rebuilt.choices[0].message.content == text


def test_stops_seeds_and_several_answers(litellm: Any, chat: dict[str, Any]) -> None:
    text = litellm.completion(**chat).choices[0].message.content
    stopped = litellm.completion(**chat, stop=[letter_of(text)]).choices[0]
    assert stopped.message.content == text[: text.index(letter_of(text))] and stopped.finish_reason == "stop"
    several = litellm.completion(**chat, n=2)
    assert several.choices[0].message.content == text != several.choices[1].message.content


def test_logprobs(litellm: Any, chat: dict[str, Any]) -> None:
    tokens = litellm.completion(**chat, logprobs=True, top_logprobs=2).choices[0].logprobs.content
    assert len(tokens) > 3 and all(len(token["top_logprobs"]) == 2 for token in tokens)


def test_a_form_is_kept_to(litellm: Any, chat: dict[str, Any]) -> None:
    done = litellm.completion(**chat | {"max_tokens": 200}, response_format=FORM)
    jsonschema.validate(json.loads(done.choices[0].message.content), SCHEMA)


@pytest.mark.parametrize("stream", [False, True])
def test_a_call_and_its_result(litellm: Any, chat: dict[str, Any], stream: bool) -> None:
    asked = chat | {"model": "openai/caller", "temperature": 0.0, "max_tokens": 100, "tools": [TOOL], "stream": stream}

    def ask(messages: list[Any]) -> Any:
        done = litellm.completion(**asked | {"messages": messages})
        return (litellm.stream_chunk_builder(list(done)) if stream else done).choices[0]

    first = ask([*WEATHER])
    (call,) = first.message.tool_calls
    assert first.finish_reason == "tool_calls" and json.loads(call.function.arguments) == {"city": "Paris"}
    result = {"role": "tool", "tool_call_id": call.id, "content": "21 degrees"}
    assert ask([*WEATHER, first.message, result]).message.content == WEATHER_TOLD


def test_a_call_that_is_asked_for(litellm: Any, chat: dict[str, Any]) -> None:
    done = litellm.completion(**chat | {"max_tokens": 200}, tools=[TOOL], tool_choice="required")
    call = done.choices[0].message.tool_calls[0]
    assert call.function.name == "get_weather" and json.loads(call.function.arguments)["city"] in ("Paris", "Rome")


def test_embeddings(litellm: Any, address: str) -> None:
    found = litellm.embedding(
        model="openai/tiny", input=["the and", "is"], api_base=f"{address}/v1", api_key="none", encoding_format="float"
    )
    assert [len(one["embedding"]) for one in found.data] == [64, 64] and found.usage.prompt_tokens > 1


def test_errors_are_the_clients_own(litellm: Any, chat: dict[str, Any], busy: tuple[str, Callable[[], None]]) -> None:
    for kind, fields in (
        ("NotFoundError", {"model": "openai/other"}),
        ("BadRequestError", {"temperature": "hot"}),
        ("ContextWindowExceededError", {"messages": LONG}),
        ("RateLimitError", {"api_base": f"{busy[0]}/v1"}),
    ):
        with pytest.raises(getattr(litellm, kind)):
            litellm.completion(**chat | fields)
