"""Ollama's own client for Python."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import httpx
import jsonschema
import ollama
import pytest
from asked_of_clients import HI, LONG, SCHEMA, TOOL, WEATHER, WEATHER_TOLD, letter_of

OPTIONS = {"num_predict": 9, "seed": 1, "temperature": 1.0}


@pytest.fixture
def client(address: str) -> Iterator[ollama.Client]:
    client = ollama.Client(host=address)
    yield client
    client._client.close()


def test_a_chat_streamed_or_not_is_that_of_openai(client: ollama.Client, address: str) -> None:
    whole = client.chat(model="tiny", messages=HI, options=OPTIONS)
    chunks = list(client.chat(model="tiny:latest", messages=HI, options=OPTIONS, stream=True))
    assert "".join(chunk.message.content or "" for chunk in chunks) == whole.message.content != ""
    assert chunks[-1].done and chunks[-1].eval_count == whole.eval_count and (chunks[-1].total_duration or 0) > 0
    body = {"model": "tiny", "messages": HI, "max_tokens": 9, "seed": 1, "temperature": 1.0}
    answer = httpx.post(f"{address}/v1/chat/completions", json=body, timeout=60).json()
    assert answer["choices"][0]["message"]["content"] == whole.message.content


def test_an_end_is_where_it_is_asked_for(client: ollama.Client) -> None:
    free = {"num_predict": 30, "seed": 21, "temperature": 1.0, "ignore_eos": True}
    done = client.chat(model="tiny", messages=HI, options=free)
    assert done.eval_count == 30 and done.done_reason == "length"
    text = done.message.content or ""
    stop = letter_of(text)
    stopped = client.chat(model="tiny", messages=HI, options=free | {"stop": [stop]})
    assert stopped.message.content == text[: text.index(stop)] and stopped.done_reason == "stop"


def test_generate(client: ollama.Client) -> None:
    raw = client.generate(model="tiny", prompt="the", raw=True, options=OPTIONS)
    chunks = client.generate(model="tiny", prompt="the", raw=True, options=OPTIONS, stream=True)
    assert "".join(chunk.response or "" for chunk in chunks) == raw.response
    assert raw.done_reason in ("stop", "length")
    assert client.generate(model="tiny", prompt="").done_reason == "load"
    told = client.generate(model="tiny", prompt="the", system="Be brief.", options=OPTIONS)
    assert (told.prompt_eval_count or 0) > (raw.prompt_eval_count or 0)


def test_a_form_is_kept_to(client: ollama.Client) -> None:
    options = {"num_predict": 200, "temperature": 0.0}
    done = client.chat(model="tiny", messages=HI, format=SCHEMA, options=options)
    jsonschema.validate(json.loads(done.message.content or ""), SCHEMA)
    free = client.chat(model="tiny", messages=HI, format="json", options=options | {"num_predict": 900})
    assert free.done_reason == "length" or json.loads(free.message.content or "") is not None


@pytest.mark.parametrize("stream", [False, True])
def test_a_call_and_its_result(client: ollama.Client, stream: bool) -> None:
    asked = {"model": "caller", "tools": [TOOL], "options": {"temperature": 0.0}, "stream": stream}

    def ask(messages: list[object]) -> ollama.Message:
        answer = client.chat(messages=messages, **asked)  # type: ignore[call-overload]
        chunks = list(answer) if stream else [answer]
        calls = [call for chunk in chunks for call in chunk.message.tool_calls or []]
        return ollama.Message(
            role="assistant", content="".join(c.message.content or "" for c in chunks), tool_calls=calls or None
        )

    called = ask([*WEATHER])
    (call,) = called.tool_calls or []
    assert call.function.name == "get_weather" and call.function.arguments == {"city": "Paris"}
    result = {"role": "tool", "tool_name": "get_weather", "content": "21 degrees"}
    assert ask([*WEATHER, called, result]).content == WEATHER_TOLD


def test_logprobs(client: ollama.Client) -> None:
    asked = {"model": "tiny", "messages": HI, "options": OPTIONS, "logprobs": True, "top_logprobs": 2}
    whole = client.chat(**asked)  # type: ignore[call-overload]
    assert len(whole.logprobs) == whole.eval_count
    assert all(one.logprob <= 0.0 and len(one.top_logprobs) == 2 for one in whole.logprobs)
    chunks = client.chat(**asked, stream=True)  # type: ignore[call-overload]
    assert [one for chunk in chunks for one in chunk.logprobs or []] == list(whole.logprobs)


def test_embeddings(client: ollama.Client) -> None:
    found = client.embed(model="tiny", input=["the and", "is"])
    assert [len(vector) for vector in found.embeddings] == [64, 64] and (found.prompt_eval_count or 0) > 1
    assert client.embeddings(model="tiny", prompt="is").embedding == pytest.approx(found.embeddings[1], abs=1e-6)
    assert len(client.embed(model="tiny", input="is", dimensions=16).embeddings[0]) == 16


def test_what_there_is(client: ollama.Client) -> None:
    client.generate(model="tiny", prompt="")
    assert [model.model for model in client.list().models] == ["tiny:latest", "caller:latest"]
    assert "tiny:latest" in [model.model for model in client.ps().models]
    assert client.show("tiny").template and "tools" in (client.show("caller").capabilities or [])


def test_errors_are_the_clients_own(client: ollama.Client, busy: tuple[str, Callable[[], None]]) -> None:
    for status, said, fields in (
        (404, "'other'", {"model": "other"}),
        (400, "1024", {"messages": LONG}),
        (400, "temperature", {"options": {"temperature": "hot"}}),
    ):
        for stream in (False, True):
            with pytest.raises(ollama.ResponseError) as error:
                list(client.chat(**{"model": "tiny", "messages": HI, "stream": stream, **fields}))  # type: ignore[call-overload]
            assert error.value.status_code == status and said in error.value.error
    occupied = ollama.Client(host=busy[0])
    with pytest.raises(ollama.ResponseError) as error:
        occupied.chat(model="tiny", messages=HI)
    assert error.value.status_code == 429
    occupied._client.close()
