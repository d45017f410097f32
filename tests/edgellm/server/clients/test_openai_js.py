"""OpenAI's own client for JavaScript, run by Node; `openai.mjs` asks."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest
from asked_of_clients import FORM, HI, LONG, SCHEMA, TOOL, WEATHER, WEATHER_TOLD

CHAT: dict[str, Any] = {"model": "tiny", "messages": HI, "max_tokens": 12, "seed": 21, "temperature": 1.0}
QUESTIONS = {"chat": CHAT, "letter": "P", "long": LONG, "form": FORM, "tool": TOOL, "weather": WEATHER}


@pytest.fixture(scope="module")
def found(javascript: Path, address: str, busy: tuple[str, Callable[[], None]]) -> dict[str, Any]:
    """All answers."""
    shutil.copy(Path(__file__).with_name("openai.mjs"), javascript)
    command = ["node", "openai.mjs", address, busy[0], json.dumps(QUESTIONS)]
    done = subprocess.run(command, cwd=javascript, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    answers: dict[str, Any] = json.loads(done.stdout)
    return answers


def test_a_chat_is_the_same_streamed_or_not_and_as_without_a_client(found: dict[str, Any], address: str) -> None:
    choice = found["chat"]["choices"][0]
    plain = httpx.post(f"{address}/v1/chat/completions", json=CHAT, timeout=60).json()["choices"][0]
    assert found["stream"]["text"] == choice["message"]["content"] == plain["message"]["content"] != ""
    assert found["stream"]["reasons"] == [choice["finish_reason"]]
    assert found["stream"]["usage"]["completion_tokens"] == found["chat"]["usage"]["completion_tokens"]
    assert found["stopped"]["kind"] == "APIUserAbortError"


def test_several_answers_and_stops(found: dict[str, Any]) -> None:
    text = found["chat"]["choices"][0]["message"]["content"]
    first, second = (choice["message"]["content"] for choice in found["several"]["choices"])
    assert first == text != second
    (cut,) = found["cut"]["choices"]
    assert "P" in text and cut["message"]["content"] == text[: text.index("P")] and cut["finish_reason"] == "stop"


def test_logprobs(found: dict[str, Any]) -> None:
    tokens = found["logprobs"]["choices"][0]["logprobs"]["content"]
    assert len(tokens) == found["chat"]["usage"]["completion_tokens"] > 3
    assert all(token["logprob"] <= 0.0 and len(token["top_logprobs"]) == 2 for token in tokens)


def test_a_form_is_kept_to(found: dict[str, Any]) -> None:
    jsonschema.validate(json.loads(found["form"]["choices"][0]["message"]["content"]), SCHEMA)


def test_calls_and_their_results(found: dict[str, Any]) -> None:
    (call,) = found["forced"]["choices"][0]["message"]["tool_calls"]
    assert call["function"]["name"] == "get_weather"
    assert json.loads(call["function"]["arguments"])["city"] in ("Paris", "Rome")
    trip = found["roundTrip"]
    (call,), (streamed,) = trip["first"]["message"]["tool_calls"], trip["streamed"]["tool_calls"]
    assert trip["first"]["finish_reason"] == "tool_calls"
    assert json.loads(call["function"]["arguments"]) == {"city": "Paris"}
    assert (streamed["id"], streamed["function"]["arguments"]) == (call["id"], call["function"]["arguments"])
    assert trip["last"] == WEATHER_TOLD


def test_embeddings_responses_models(found: dict[str, Any]) -> None:
    for packed, plain in zip(found["embeddings"]["packed"], found["embeddings"]["plain"], strict=True):
        assert len(packed) == 64 and packed == pytest.approx(plain, abs=1e-6)
    assert found["responses"] and found["models"] == ["tiny", "caller"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("missing", {"kind": "NotFoundError", "status": 404, "code": "model_not_found", "param": "model"}),
        ("wrong", {"kind": "BadRequestError", "status": 400, "param": "temperature"}),
        ("long", {"kind": "BadRequestError", "status": 400, "code": "context_length_exceeded"}),
        ("busy", {"kind": "RateLimitError", "status": 429}),
    ],
)
def test_errors_are_the_clients_own(found: dict[str, Any], name: str, expected: dict[str, Any]) -> None:
    assert {key: found[name][key] for key in expected} == expected
