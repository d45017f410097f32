"""LangChain's ChatOpenAI and OpenAIEmbeddings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jsonschema
import openai
import pydantic
import pytest
from asked_of_clients import HI, LONG, SCHEMA, TOOL, WEATHER, WEATHER_TOLD, letter_of

pytestmark = [
    pytest.mark.clients,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # it leaves its connections to the garbage collector
]
ASKED: dict[str, Any] = {"model": "tiny", "max_tokens": 12, "seed": 21, "temperature": 1.0}


@pytest.fixture
def chat(address: str) -> Callable[..., Any]:
    """A maker of chat models."""
    found = pytest.importorskip("langchain_openai", reason="langchain-openai is missing (pip install -e '.[clients]')")

    def make(**fields: Any) -> Any:
        server = {"base_url": f"{address}/v1", "api_key": "none", "max_retries": 0}
        return found.ChatOpenAI(**server | ASKED | fields)

    return make


def test_a_chat_is_the_same_streamed_or_not(chat: Callable[..., Any]) -> None:
    whole = chat().invoke(HI)
    assert "".join(chunk.content for chunk in chat().stream(HI)) == whole.content != ""
    assert whole.usage_metadata["output_tokens"] > 0
    stop = letter_of(whole.content)
    assert chat().invoke(HI, stop=[stop]).content == whole.content[: whole.content.index(stop)]


def test_logprobs(chat: Callable[..., Any]) -> None:
    told = chat(logprobs=True, top_logprobs=2).invoke(HI).response_metadata["logprobs"]["content"]
    assert len(told) > 3 and all(len(token["top_logprobs"]) == 2 for token in told)


class Animal(pydantic.BaseModel, extra="forbid"):
    """A form as programs write it; without "forbid" a call may have more arguments, and this model never ends them."""

    tame: bool
    legs: int = pydantic.Field(ge=0, le=9)


@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
def test_a_form_is_kept_to(chat: Callable[..., Any], method: str) -> None:
    found = chat(max_tokens=200).with_structured_output(Animal, method=method).invoke(HI)
    assert isinstance(found, Animal) and 0 <= found.legs <= 9
    schema = SCHEMA | {"title": "animal", "description": "An animal."}
    jsonschema.validate(chat(max_tokens=200).with_structured_output(schema, method=method).invoke(HI), SCHEMA)


@pytest.mark.parametrize("stream", [False, True])
def test_a_call_and_its_result(chat: Callable[..., Any], stream: bool) -> None:
    model = chat(model="caller", temperature=0.0, max_tokens=100, streaming=stream).bind_tools([TOOL])
    first = model.invoke(WEATHER)
    (call,) = first.tool_calls
    assert call["name"] == "get_weather" and call["args"] == {"city": "Paris"}
    result = {"role": "tool", "tool_call_id": call["id"], "content": "21 degrees"}
    assert model.invoke([*WEATHER, first, result]).content == WEATHER_TOLD


def test_a_call_that_is_asked_for(chat: Callable[..., Any]) -> None:
    model = chat(max_tokens=200).bind_tools([TOOL], tool_choice="get_weather")
    assert model.invoke(HI).tool_calls[0]["args"]["city"] in ("Paris", "Rome")


def test_responses(chat: Callable[..., Any]) -> None:
    model = chat(model="caller", temperature=0.0, max_tokens=100, seed=None, use_responses_api=True).bind_tools([TOOL])
    first = model.invoke(WEATHER)
    (call,) = first.tool_calls
    assert call["args"] == {"city": "Paris"}
    result = {"role": "tool", "tool_call_id": call["id"], "content": "21 degrees"}
    assert model.invoke([*WEATHER, first, result]).text == WEATHER_TOLD


def test_embeddings(address: str) -> None:
    found = pytest.importorskip("langchain_openai", reason="langchain-openai is missing (pip install -e '.[clients]')")
    vectors = found.OpenAIEmbeddings(
        model="tiny",
        base_url=f"{address}/v1",
        api_key="none",
        check_embedding_ctx_length=False,  # or it sends ids of OpenAI's tokens, which mean nothing to another model
    ).embed_documents(["the and", "is"])
    assert [len(vector) for vector in vectors] == [64, 64]


def test_errors_are_the_clients_own(chat: Callable[..., Any], busy: tuple[str, Callable[[], None]]) -> None:
    for kind, fields, said in (
        (openai.NotFoundError, {"model": "other"}, HI),
        (openai.BadRequestError, {"temperature": -1.0}, HI),
        (openai.BadRequestError, {}, LONG),
        (openai.RateLimitError, {"base_url": f"{busy[0]}/v1"}, HI),
    ):
        with pytest.raises(kind):
            chat(**fields).invoke(said)
