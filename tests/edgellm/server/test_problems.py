"""Errors name the field that was sent, in one line that ends, whatever the field was called within."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from edgellm.errors import ContextError, EdgeLLMError, OptionError, ResourceError, TemplateError
from edgellm.server.problems import MAX_MESSAGE, ApiError, from_error

CHAT = [{"role": "user", "content": "Hi"}]
BAD_SCHEMA = {"type": "nothing"}
CALLS = [{"role": "assistant", "content": None, "tool_calls": 5}]
STRICT = {"name": "f", "strict": True, "parameters": {"type": "object", "properties": {"a": BAD_SCHEMA}}}


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        (
            "/v1/chat/completions",
            {"response_format": {"type": "json_schema", "json_schema": {"schema": BAD_SCHEMA}}},
            "response_format",
        ),
        ("/v1/chat/completions", {"json_schema": BAD_SCHEMA}, "json_schema"),
        ("/v1/chat/completions", {"grammar": "nothing"}, "grammar"),
        ("/v1/chat/completions", {"tools": [{"type": "function", "function": STRICT}]}, "tools"),
        ("/v1/chat/completions", {"messages": [{"content": "x"}]}, "messages"),
        ("/v1/chat/completions", {"messages": CALLS}, "messages"),
        ("/v1/completions", {"prompt": [10**9]}, "prompt"),
        ("/v1/completions", {"prompt": "word " * 900}, "prompt"),
        ("/v1/embeddings", {"input": [-1]}, "input"),
        ("/v1/embeddings", {"input": "word " * 900}, "input"),
        ("/v1/responses", {"input": "word " * 900}, "input"),
        ("/v1/responses", {"max_output_tokens": "x"}, "max_output_tokens"),
        ("/v1/responses", {"text": {"format": {"type": "json_schema", "schema": BAD_SCHEMA}}}, "text"),
        ("/api/chat", {"format": BAD_SCHEMA}, "format"),
        ("/api/generate", {"format": BAD_SCHEMA}, "format"),
        ("/api/generate", {"prompt": "word " * 900}, "prompt"),
        ("/detokenize", {"tokens": [10**9]}, "tokens"),
    ],
)
def test_the_field_that_was_sent_is_named(client: httpx.Client, path: str, body: dict[str, Any], param: str) -> None:
    body = {"messages": CHAT, "prompt": "the", "input": "the", "max_tokens": 2, **body}
    answer = client.post(path, json=body)
    error = answer.json()["error"]
    assert answer.status_code == 400
    if path.startswith("/api/"):  # Ollama's errors are texts
        assert isinstance(error, str) and (param in error or param == "prompt"), error
    else:
        assert error["param"] == param, error


def test_what_was_sent_is_quoted_in_part(client: httpx.Client) -> None:
    for field in ({"response_format": {"type": "a" * 100_000}}, {"temperature": "a\n" * 100_000}):
        message = client.post("/v1/chat/completions", json={"messages": CHAT, **field}).json()["error"]["message"]
        assert (len(message) < MAX_MESSAGE + 50 and "\n" not in message and "aaa" in message) or "a\\n" in message


@pytest.mark.parametrize(
    ("error", "status", "param"),
    [
        (OptionError("top_p must be 1"), 400, "top_p"),
        (OptionError("response_format.type must be one of"), 400, "response_format.type"),
        (OptionError("the seed is wrong"), 400, None),
        (TemplateError("the template says no"), 400, "messages"),
        (ContextError("too long"), 400, "messages"),
        (ResourceError("no memory"), 503, None),
        (EdgeLLMError("x"), 500, None),
        (ZeroDivisionError("secret"), 500, None),
    ],
)
def test_what_an_error_means(error: Exception, status: int, param: str | None) -> None:
    found = from_error(error)
    assert (found.status, found.param) == (status, param) and "secret" not in found.message


def test_a_name_is_changed_only_where_it_stands_for_another() -> None:
    error = ApiError(400, "max_tokens is 0", param="max_tokens")
    names = {"max_tokens": ("max_output_tokens",)}
    assert error.named_as(names, ["max_output_tokens"]).message == "max_output_tokens is 0"
    assert error.named_as({}, []).param == "max_tokens"
    assert error.named_as({"max_tokens": ("a", "b")}, ["b"]).param == "b", "the one that was sent"
