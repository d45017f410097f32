"""Bodies that no well-meaning client sends: for tools/fuzz_server.py. Made of one valid body for each route.

Texts, not values: numbers that no float holds, keys twice and halves of characters have no other form.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

CHAT = [{"role": "user", "content": "Hi"}]
CALLED = [
    *CHAT,
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
    },
    {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "x"}]},
]
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 0}}}
TOOLS = [{"type": "function", "function": {"name": "f", "description": "d", "parameters": SCHEMA}}]
VALID: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {
        "messages": CHAT,
        "max_tokens": 2,
        "response_format": {"type": "json_schema", "json_schema": {"name": "a", "strict": True, "schema": SCHEMA}},
        "logit_bias": {"5": 1.0},
        "stream_options": {"include_usage": True},
        "logprobs": True,
        "top_logprobs": 1,
        "stop": ["x"],
    },
    "/v1/completions": {"prompt": ["a", [70, 71]], "max_tokens": 2, "stop": ["x"], "logprobs": 1},
    "/v1/responses": {
        "input": [{"role": "user", "content": [{"type": "input_text", "text": "a"}]}],
        "max_output_tokens": 2,
        "text": {"format": {"type": "json_schema", "name": "a", "schema": SCHEMA}},
        "metadata": {"a": "b"},
    },
    "/v1/embeddings": {"input": ["the", [70]], "dimensions": 4},
    "/tokenize": {"content": "the"},
    "/detokenize": {"tokens": [70]},
    "/apply-template": {"messages": CALLED},
    "/api/chat": {"messages": CHAT, "options": {"num_predict": 2, "seed": 1}, "format": SCHEMA, "think": False},
    "/api/generate": {"prompt": "the", "options": {"num_predict": 2}, "format": "json"},
    "/api/show": {"model": "a"},
}
WITH_TOOLS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": CALLED, "max_tokens": 2, "tools": TOOLS, "tool_choice": "auto"},
    "/v1/responses": {
        "input": [
            {"role": "user", "content": "a"},
            {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "a", "output": "x"},
        ],
        "max_output_tokens": 2,
        "tools": [{"type": "function", **TOOLS[0]["function"]}],
        "tool_choice": {"type": "function", "name": "f"},
    },
    "/api/chat": {
        "messages": [
            *CHAT,
            {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1}}}]},
        ],
        "options": {"num_predict": 2},
        "tools": TOOLS,
    },
}
LOOPS = ("\n", " ", '"', "\\", "(", "[", "start[\n", "a:", "a\n", "::=", "<|")
"""What a pattern that looks for something may come back to again and again."""
VALUES = (
    "null",
    "true",
    "false",
    "0",
    "-1",
    "-0.0",
    "1.5",
    "3.0",
    "1e400",
    "-1e400",
    "1e308",
    "5e-324",
    "9223372036854775808",
    "18446744073709551616",
    "1" + "0" * 400,
    "1" + "0" * 5000,
    "NaN",
    "-Infinity",
    '""',
    '"x"',
    '"1"',
    r'"\u0000"',
    r'"\ud800"',
    r'"\ud83d\ude00"',
    json.dumps("\U0010ffff\u202e\ufeff\r\n</s><|im_start|>", ensure_ascii=False),
    json.dumps("a" * 100_000),
    *(json.dumps(text * (60_000 // len(text))) for text in LOOPS),
    json.dumps("{{ 7 * 7 }}{% for i in range(10**9) %}x{% endfor %}"),
    "[]",
    "[null]",
    "[[]]",
    "[1, 2.5]",
    '["x", 1]',
    r'["\udfff"]',
    "[" + "0," * 5000 + "0]",
    "[-1]",
    "[1e99]",
    "{}",
    '{"": null}',
    '{"a": 1, "a": 2}',
    '{"type": "x"}',
    '{"type": "function"}',
    '{"type": 1e400}',
    '{"$ref": "#"}',
    '{"$ref": "#/properties/a"}',
    '{"type": ["object", 5]}',
    '{"role": "user"}',
    '[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}]}]',
    "[" * 40 + "]" * 40,
    '{"a":' * 40 + "1" + "}" * 40,
    "[" * 100_000 + "]" * 100_000,
)
"""What is put in the place of each value of a valid body."""
NO_JSON = (
    b"",
    b" ",
    b"{",
    b"}",
    b"[]",
    b"null",
    b"1",
    b'"x"',
    b"\x00",
    b"\xff\xfe{\x00}\x00",
    b"\xef\xbb\xbf{}",
    b"{'a': 1}",
    b'{"a": 1,}',
    b'{"a": 1} x',
    b'{"a": 01}',
    b'{"a": "\xff"}',
    b'{"a": "\x01"}',
    b'{"a": ' + b"9" * 100_000 + b"}",
    b'{"a": "\\u00"}',
    b'{"\\ud800": 1}',
    b'{"a": ' + b"[" * 1_000_000,
    b"{" * 1_000_000,
    b'{"a":"' * 100_000,
)
"""What is no JSON object, or none that a server should bear."""


class Evil(NamedTuple):
    """field: of the body, that holds what is wrong; None where the body as a whole is."""

    path: str
    body: bytes
    field: str | None


def evil_bodies(path: str, fields: Iterator[str] | tuple[str, ...]) -> Iterator[Evil]:
    """All of a route. fields: the names that it knows beside those of its valid body."""
    for body in NO_JSON:
        yield Evil(path, body, None)
    for valid in (VALID[path], WITH_TOOLS.get(path, {})):
        for steps in _places(valid):
            for value in VALUES:
                yield Evil(path, _with(valid, steps, value), str(steps[0]))
    for name in fields:
        if name not in VALID[path] and name not in WITH_TOOLS.get(path, {}):
            for value in VALUES:
                yield Evil(path, _with({**VALID[path], name: None}, (name,), value), name)


def _places(value: Any) -> Iterator[tuple[str | int, ...]]:
    """Ways to all values within a value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (key,)
        for steps in _places(item):
            yield (key, *steps)


MARK = "@here@"


def _with(body: dict[str, Any], steps: tuple[str | int, ...], text: str) -> bytes:
    copy: Any = json.loads(json.dumps(body))
    at = copy
    for step in steps[:-1]:
        at = at[step]
    at[steps[-1]] = MARK
    return json.dumps(copy).replace(json.dumps(MARK), text).encode()
