"""OpenAI's own client for Python."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import jsonschema
import openai
import pydantic
import pytest
from asked_of_clients import FORM, HI, LONG, SCHEMA, TOOL, WEATHER, WEATHER_TOLD, letter_of

ASKED: dict[str, Any] = {"model": "tiny", "messages": HI, "max_tokens": 12, "seed": 21, "temperature": 1.0}


@pytest.fixture
def client(address: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0) as client:
        yield client


def test_a_chat_is_the_same_streamed_or_not(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(**ASKED)
    pieces, usage, reasons = "", None, []
    for chunk in client.chat.completions.create(**ASKED, stream=True, stream_options={"include_usage": True}):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            pieces += choice.delta.content or ""
            reasons.append(choice.finish_reason)
    assert pieces == whole.choices[0].message.content and pieces
    assert whole.usage is not None and usage is not None and usage.completion_tokens == whole.usage.completion_tokens
    assert [reason for reason in reasons if reason] == [whole.choices[0].finish_reason]
    with client.chat.completions.stream(
        **{**ASKED, "seed": 4}
    ) as stream:  # an answer that ends by itself: others are errors
        text = "".join(event.delta for event in stream if event.type == "content.delta")
        assert stream.get_final_completion().choices[0].message.content == text != ""


def test_an_end_is_where_it_is_asked_for(client: openai.OpenAI) -> None:
    free: dict[str, Any] = {**ASKED, "max_tokens": 30, "extra_body": {"ignore_eos": True}}
    done = client.chat.completions.create(**free)
    assert done.usage is not None and done.usage.completion_tokens == 30
    assert done.choices[0].finish_reason == "length"
    text = done.choices[0].message.content or ""
    stop = letter_of(text)
    stopped = client.chat.completions.create(**free, stop=[stop, "never said"])
    assert stopped.choices[0].message.content == text[: text.index(stop)]
    assert stopped.choices[0].finish_reason == "stop"


def test_seeds_and_several_answers(client: openai.OpenAI) -> None:
    done = client.chat.completions.create(**{**ASKED, "n": 3, "seed": 1, "temperature": 2.0})
    alone = [
        client.chat.completions.create(**{**ASKED, "seed": 1 + i, "temperature": 2.0}).choices[0].message.content
        for i in range(3)
    ]
    assert [choice.message.content for choice in done.choices] == alone, "each answer has the next seed"
    assert len(set(alone)) == 3


def test_logprobs(client: openai.OpenAI) -> None:
    asked: dict[str, Any] = {**ASKED, "logprobs": True, "top_logprobs": 2}
    found = client.chat.completions.create(**asked).choices[0].logprobs
    assert found is not None and found.content is not None and len(found.content) > 3
    assert all(token.logprob <= 0.0 and len(token.top_logprobs) == 2 for token in found.content)
    streamed = [
        token
        for chunk in client.chat.completions.create(**asked, stream=True)
        for choice in chunk.choices
        if choice.logprobs is not None
        for token in choice.logprobs.content or []
    ]
    assert streamed == found.content


def test_a_form_is_kept_to(client: openai.OpenAI) -> None:
    for seed in range(3):
        asked: dict[str, Any] = {**ASKED, "max_tokens": 200, "seed": seed, "response_format": FORM}
        done = client.chat.completions.create(**asked)
        jsonschema.validate(json.loads(done.choices[0].message.content or ""), SCHEMA)


class Animal(pydantic.BaseModel):
    """A form as programs write it."""

    tame: bool
    legs: int = pydantic.Field(ge=0, le=9)


def test_a_form_of_pydantic_is_parsed(client: openai.OpenAI) -> None:
    asked: dict[str, Any] = {**ASKED, "max_tokens": 200}
    found = client.chat.completions.parse(**asked, response_format=Animal).choices[0].message.parsed
    assert isinstance(found, Animal) and 0 <= found.legs <= 9


def test_a_call_that_is_asked_for(client: openai.OpenAI) -> None:
    asked: dict[str, Any] = {**ASKED, "max_tokens": 200, "tools": [TOOL]}
    for choice in ("required", {"type": "function", "function": {"name": "get_weather"}}):
        done = client.chat.completions.create(**asked, tool_choice=choice, parallel_tool_calls=False).choices[0]
        assert done.finish_reason == "tool_calls" and done.message.content is None
        (call,) = done.message.tool_calls or []
        assert call.type == "function" and call.function.name == "get_weather"
        assert json.loads(call.function.arguments)["city"] in ("Paris", "Rome")


def test_a_call_and_its_result(client: openai.OpenAI) -> None:
    asked: dict[str, Any] = {"model": "caller", "tools": [TOOL], "temperature": 0.0}
    first = client.chat.completions.create(**asked, messages=WEATHER).choices[0]
    assert first.finish_reason == "tool_calls"
    (call,) = first.message.tool_calls or []
    assert call.type == "function" and json.loads(call.function.arguments) == {"city": "Paris"}
    with client.chat.completions.stream(**asked, messages=WEATHER) as stream:
        streamed = stream.get_final_completion().choices[0].message
    (same,) = streamed.tool_calls or []
    assert (same.id, same.function.name) == (call.id, "get_weather")
    assert same.function.arguments == call.function.arguments
    result = {"role": "tool", "tool_call_id": call.id, "content": "21 degrees"}
    told: Any = [*WEATHER, first.message, result]
    assert client.chat.completions.create(**asked, messages=told).choices[0].message.content == WEATHER_TOLD


def test_completions_and_models(client: openai.OpenAI) -> None:
    asked: dict[str, Any] = {"model": "tiny", "prompt": "the", "max_tokens": 9, "temperature": 0}
    whole = client.completions.create(**asked).choices[0].text
    assert "".join(chunk.choices[0].text for chunk in client.completions.create(**asked, stream=True)) == whole
    assert [model.id for model in client.models.list()] == ["tiny", "caller"]
    assert client.models.retrieve("caller").id == "caller"


def test_embeddings_and_their_width(client: openai.OpenAI) -> None:
    found = client.embeddings.create(model="tiny", input=["the and", "is"])
    plain = client.embeddings.create(model="tiny", input=["the and", "is"], encoding_format="float")
    for one, other in zip(found.data, plain.data, strict=True):  # the first travelled as base64
        assert one.embedding == pytest.approx(other.embedding, abs=1e-6) and len(one.embedding) == 64
    assert len(client.embeddings.create(model="tiny", input="the", dimensions=16).data[0].embedding) == 16
    assert found.usage.prompt_tokens > 1


def test_responses(client: openai.OpenAI) -> None:
    asked: dict[str, Any] = {"model": "tiny", "input": "Hi", "max_output_tokens": 9, "temperature": 0.0}
    whole = client.responses.create(**asked).output_text
    events = client.responses.create(**asked, stream=True)
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == whole != ""
    function: Any = {"type": "function", **TOOL["function"], "strict": True}
    told: Any = [*WEATHER]
    first = client.responses.create(model="caller", input=told, tools=[function], temperature=0)
    (call,) = (item for item in first.output if item.type == "function_call")
    assert json.loads(call.arguments) == {"city": "Paris"}
    told += [call, {"type": "function_call_output", "call_id": call.call_id, "output": "21 degrees"}]
    done = client.responses.create(model="caller", input=told, tools=[function], temperature=0)
    assert done.output_text == WEATHER_TOLD


def test_errors_are_the_clients_own(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as missing:
        client.chat.completions.create(**{**ASKED, "model": "other"})
    assert missing.value.code == "model_not_found" and "tiny, caller" in missing.value.message
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("other")
    with pytest.raises(openai.BadRequestError) as wrong:
        client.chat.completions.create(**{**ASKED, "temperature": "hot"})
    assert wrong.value.param == "temperature"
    for stream in (False, True):
        with pytest.raises(openai.BadRequestError) as long:
            client.chat.completions.create(**{**ASKED, "messages": LONG, "stream": stream})
        assert long.value.code == "context_length_exceeded" and "1024" in long.value.message


def test_a_server_with_a_key(serve: Callable[..., Any]) -> None:
    with (
        serve(api_key="right") as address,
        openai.OpenAI(base_url=f"{address}/v1", api_key="wrong", max_retries=0) as client,
    ):
        with pytest.raises(openai.AuthenticationError):
            client.chat.completions.create(**ASKED)
        assert client.with_options(api_key="right").chat.completions.create(**ASKED).choices


def test_a_busy_server_is_asked_again(busy: tuple[str, Callable[[], None]]) -> None:
    address, free = busy
    with openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0) as client:
        with pytest.raises(openai.RateLimitError):
            client.chat.completions.create(**ASKED)
        timer = threading.Timer(0.3, free)
        timer.start()
        assert client.with_options(max_retries=3).chat.completions.create(**ASKED).choices, "after Retry-After"
        timer.join()
