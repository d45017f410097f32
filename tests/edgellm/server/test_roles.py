"""Conversations that a template refuses, over HTTP. Case O05: adapted by rule or 400 before the first byte, never 500."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from running_server import OPTIONS, running
from tiny_models import write_tiny

from edgellm.server.models import ServedModels
from edgellm.server.settings import ServerSettings

# What Gemma 2's template demands: no system role, user and assistant in turns. `messages[0]` of nothing is an error.
STRICT = (
    "{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant') }}{% endif %}"
    "{{ '<' + m['role'] + '>' + m['content'] | trim }}\n{% endfor %}"
)
USER, SYSTEM = {"role": "user", "content": "Hi"}, {"role": "system", "content": "Be brief."}
ASSISTANT = {"role": "assistant", "content": "Yes?"}
RESULT = {"role": "tool", "tool_call_id": "a", "content": "5"}
ADAPTED = [
    [SYSTEM, USER],
    [USER, USER],
    [ASSISTANT, USER],
    [ASSISTANT],
    [SYSTEM],
    [USER, ASSISTANT, ASSISTANT, USER],
    [SYSTEM, SYSTEM, USER, USER],
    [USER, RESULT],
]
REFUSED: list[tuple[list[Any], str]] = [
    ([], "at least one message"),
    ([{"role": "robot", "content": "x"}], "alternate"),
    ([{"content": "x"}], "role"),
    ([{"role": "user", "content": [{"type": "image_url"}]}], "reads text"),
    ([{"role": None, "content": "x"}], "role"),
]


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    metadata = {"tokenizer.chat_template": STRICT}
    path = write_tiny(tmp_path_factory.mktemp("strict") / "tiny.gguf", vocab=300, metadata=metadata)
    served = ServedModels({"tiny": str(path)}, OPTIONS)
    with running(served, ServerSettings(port=0)) as address, httpx.Client(base_url=address, timeout=60) as client:
        while client.get("/health").status_code != 200:
            threading.Event().wait(0.05)
        yield client


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("messages", ADAPTED, ids=lambda turns: "-".join(turn["role"] for turn in turns))
def test_o05_what_can_be_adapted_is_answered(strict: httpx.Client, messages: list[Any], stream: bool) -> None:
    body = {"messages": messages, "max_tokens": 3, "stream": stream}
    answer = strict.post("/v1/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    assert answer.text.endswith("data: [DONE]\n\n") if stream else answer.json()["choices"]
    for path, form in (("/api/chat", {"options": {"num_predict": 3}}), ("/apply-template", {})):
        assert strict.post(path, json={"messages": messages, "stream": stream, **form}).status_code == 200
    said = strict.post("/apply-template", json={"messages": messages}).json()["prompt"]
    assert all(turn["content"] in said for turn in messages), "nothing is lost"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("messages", "why"), REFUSED)
def test_o05_what_cannot_is_refused_before_the_first_byte(
    strict: httpx.Client, messages: list[Any], why: str, stream: bool
) -> None:
    answer = strict.post("/v1/chat/completions", json={"messages": messages, "max_tokens": 3, "stream": stream})
    assert answer.status_code == 400 and answer.headers["content-type"] == "application/json"
    error = answer.json()["error"]
    assert why in error["message"] and "\n" not in error["message"]
    assert error["param"] == "messages" and error["type"] == "invalid_request_error"


def test_o05_a_turn_that_was_cut_short_does_no_harm(strict: httpx.Client) -> None:
    """After Ctrl-C a client keeps half an answer, or none, and asks again."""
    with strict.stream(
        "POST", "/v1/chat/completions", json={"messages": [USER], "stream": True, "ignore_eos": True}
    ) as answer:
        lines = answer.iter_lines()
        role = json.loads(next(lines).removeprefix("data: "))["choices"][0]["delta"]["role"]
    for after in (
        [USER, {"role": role, "content": ""}, USER],
        [USER, USER],
        [USER, {"role": role, "content": None}, USER],
    ):
        body = {"messages": after, "max_tokens": 2}
        assert strict.post("/v1/chat/completions", json=body).status_code == 200
