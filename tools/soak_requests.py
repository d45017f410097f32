"""The requests of tools/soak_server.py: good ones whose answers are known, clients that leave, and nonsense.

Each kind is a function of a `Client` and a random generator. It returns a `Seen`; what must not be is in `Seen.fault`.
"""

from __future__ import annotations

import http.client
import json
import random
import socket
import struct
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

WORDS = [
    "the",
    "and",
    "is",
    "of",
    "to",
    "river",
    "stone",
    "light",
    "seven",
    "carry",
    "blue",
    "under",
    "every",
    "morning",
]
JSON = {"Content-Type": "application/json"}
TIMEOUT_S = 300.0


class Seen(NamedTuple):
    """status: of HTTP, 0 where the client left first. fault: what was wrong, None if nothing."""

    status: int
    fault: str | None = None


class Client:
    """One connection after the other to a server. known: chats and the texts they had while nobody else asked."""

    def __init__(self, address: str, max_context: int) -> None:
        self.host, self.max_context = address.removeprefix("http://"), max_context
        self.known: list[tuple[dict[str, Any], str]] = []

    def send(
        self, method: str, path: str, body: bytes | None, headers: dict[str, str] = JSON
    ) -> http.client.HTTPConnection:
        """Send a request, wait for nothing."""
        connection = http.client.HTTPConnection(self.host, timeout=TIMEOUT_S)
        connection.request(method, path, body, headers)
        return connection

    def ask(self, method: str, path: str, body: Any = None, headers: dict[str, str] = JSON) -> tuple[int, bytes]:
        """-> status and body. body: bytes as they are, anything else as JSON."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        connection = self.send(method, path, data, headers)
        try:
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def text_of(self, chat: dict[str, Any]) -> str:
        """The text of a chat's answer, asked until the server has a place for it."""
        while True:
            status, body = self.ask("POST", "/v1/chat/completions", chat)
            if status not in (200, 429):
                raise SystemExit(f"a chat that is to be known was answered with {status}: {body!r}")
            if status == 200:
                return str(json.loads(body)["choices"][0]["message"]["content"])
            time.sleep(0.05)


Kind = Callable[[Client, random.Random], Seen]


def chat_of(rng: random.Random, words: int = 12, **fields: Any) -> dict[str, Any]:
    """A chat about nothing."""
    text = " ".join(rng.choices(WORDS, k=words))
    return {"messages": [{"role": "user", "content": text}], "max_tokens": rng.randint(2, 10), **fields}


def known_chats(max_context: int) -> list[dict[str, Any]]:
    """Chats whose answers are always the same."""
    rng = random.Random(0)
    greedy = [chat_of(rng, words=rng.randint(1, max_context // 24), temperature=0) for _ in range(5)]
    return greedy + [chat_of(rng, temperature=1.2, seed=i, top_p=0.9) for i in range(5)]


def _checked(status: int, body: bytes, wanted: tuple[int, ...]) -> Seen:
    """A full queue is always an answer; an error must be an object that says what."""
    if status in (200, 429) and status not in wanted:
        wanted = (*wanted, 429)
    if status not in (*wanted, 429):
        return Seen(status, f"{status} instead of {wanted}: {body[:200]!r}")
    if status >= 400 and not isinstance(json.loads(body).get("error"), (dict, str)):
        return Seen(status, f"no error object: {body[:200]!r}")
    return Seen(status)


def known_chat(client: Client, rng: random.Random) -> Seen:
    """A whole answer, the same as when nobody else asked."""
    chat, text = rng.choice(client.known)
    status, body = client.ask("POST", "/v1/chat/completions", chat)
    seen = _checked(status, body, (200,))
    if status == 200 and (got := json.loads(body)["choices"][0]["message"]["content"]) != text:
        return Seen(status, f"{got!r} instead of {text!r}")
    return seen


def known_chat_streamed(client: Client, rng: random.Random) -> Seen:
    """The same by pieces."""
    chat, text = rng.choice(client.known)
    status, body = client.ask("POST", "/v1/chat/completions", {**chat, "stream": True})
    if status != 200:
        return _checked(status, body, (200,))
    events = [line.removeprefix("data: ") for line in body.decode().split("\n\n") if line]
    if events[-1] != "[DONE]" or any('"error"' in event for event in events):
        return Seen(status, f"the stream ends with {events[-1][:200]}")
    got = "".join(json.loads(e)["choices"][0]["delta"].get("content", "") for e in events[:-1])
    return Seen(status, None if got == text else f"{got!r} instead of {text!r}")


def sampled_chat(client: Client, rng: random.Random) -> Seen:
    """Several answers, with logprobs or a form."""
    more: dict[str, Any] = {"n": rng.randint(1, 3), "temperature": 1.0}
    if rng.random() < 0.5:
        more |= {"logprobs": True, "top_logprobs": 3}
    else:
        schema = {"type": "object", "properties": {rng.choice(WORDS): {"type": "boolean"}}}
        more["response_format"] = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}
    return _checked(*client.ask("POST", "/v1/chat/completions", chat_of(rng, **more)), (200,))


def other_answer(client: Client, rng: random.Random) -> Seen:
    """Completions, responses, embeddings, Ollama's routes."""
    text, few = " ".join(rng.choices(WORDS, k=8)), rng.randint(1, 6)
    stream = rng.random() < 0.5
    path, body = rng.choice(
        (
            ("/v1/completions", {"prompt": [text, "a"], "max_tokens": few, "stream": stream}),
            ("/v1/responses", {"input": text, "max_output_tokens": few, "stream": stream}),
            ("/v1/embeddings", {"input": [text, text + " so"]}),
            ("/api/generate", {"model": "", "prompt": text, "stream": stream, "options": {"num_predict": few}}),
            ("/api/chat", {"messages": [{"role": "user", "content": text}], "options": {"num_predict": few}}),
        )
    )
    status, answer = client.ask("POST", path, body)
    if status == 200 and b'"error":{' in answer:
        return Seen(status, f"an error in the stream: {answer[-200:]!r}")
    return _checked(status, answer, (200,))


def small_route(client: Client, rng: random.Random) -> Seen:
    """What needs no computing."""
    method, path, body = rng.choice(
        (
            ("POST", "/tokenize", {"content": " ".join(rng.choices(WORDS, k=50))}),
            ("POST", "/detokenize", {"tokens": [rng.randrange(100) for _ in range(20)]}),
            ("POST", "/apply-template", {"messages": [{"role": "user", "content": "a"}]}),
            ("POST", "/api/show", {"model": ""}),
            ("GET", "/v1/models", None),
            ("GET", "/health", None),
            ("GET", "/metrics", None),
            ("GET", "/", None),
            ("GET", "/api/tags", None),
        )
    )
    return _checked(*client.ask(method, path, body), (200,))


def leave_stream(client: Client, rng: random.Random) -> Seen:
    """Read a few pieces of a long answer, then go."""
    chat = chat_of(rng, max_tokens=None, stream=True, ignore_eos=True, n=rng.randint(1, 2))
    connection = client.send("POST", "/v1/chat/completions", json.dumps(chat).encode())
    try:
        answer = connection.getresponse()
        if answer.status != 200:
            return _checked(answer.status, answer.read(), (200,))
        for _ in range(2 * rng.randint(0, 8)):  # a piece and an empty line
            answer.readline()
        return Seen(0)
    finally:
        _cut(connection, rng)


def leave_before_answer(client: Client, rng: random.Random) -> Seen:
    """Go while the request waits, its prompt is read, or the answer is made."""
    is_long = rng.random() < 0.5
    words = rng.randint(10, client.max_context // 8) if is_long else 5
    chat = chat_of(rng, words=words, max_tokens=None, ignore_eos=True, stream=rng.random() < 0.5)
    connection = client.send("POST", "/v1/chat/completions", json.dumps(chat).encode())
    time.sleep(rng.random() ** 2 * 0.3)
    _cut(connection, rng)
    return Seen(0)


def leave_in_body(client: Client, rng: random.Random) -> Seen:
    """Go before all of the body is sent."""
    host, port = client.host.rsplit(":", 1)
    data = json.dumps(chat_of(rng, words=200)).encode()
    path = rng.choice(("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/tokenize"))
    head = f"POST {path} HTTP/1.1\r\nHost: {client.host}\r\nContent-Type: application/json\r\n"
    with socket.create_connection((host, int(port)), timeout=TIMEOUT_S) as connection:
        connection.sendall(f"{head}Content-Length: {len(data)}\r\n\r\n".encode()[: rng.choice((9999, 40))])
        connection.sendall(data[: rng.randrange(len(data))])
        time.sleep(rng.random() * 0.05)
    return Seen(0)


def bad_body(client: Client, rng: random.Random) -> Seen:
    """What is no request."""
    body, headers, status = rng.choice(
        (
            (b"", JSON, 400),
            (b"{", JSON, 400),
            (b'{"messages": NaN}', JSON, 400),
            (b"\xff\xfe", JSON, 400),
            (b"[" * 5000 + b"]" * 5000, JSON, 400),
            (b'{"messages": [{"role": "user", "content": "\\ud800"}]}', JSON, 400),
            (b"{}", {"Content-Type": "text/plain"}, 415),
            (b"{}", {**JSON, "Origin": "https://evil.example"}, 403),
            (b"{}", {**JSON, "Host": "evil.example"}, 403),
        )
    )
    return _checked(*client.ask("POST", "/v1/chat/completions", body, headers), (status,))


def bad_field(client: Client, rng: random.Random) -> Seen:
    """A field that is wrong."""
    field = rng.choice(
        (
            {"messages": []},
            {"messages": [{"role": 5}]},
            {"temperature": -1},
            {"max_tokens": 0},
            {"n": 99},
            {"stop": [1]},
            {"logit_bias": {"x": 1}},
            {"seed": "a"},
            {"response_format": {"type": "xml"}},
            {"grammar": "start: ("},
            {"tools": [{"type": "function"}]},
            {"stream": 3},
        )
    )
    return _checked(*client.ask("POST", "/v1/chat/completions", chat_of(rng) | field), (400,))


def too_long(client: Client, rng: random.Random) -> Seen:
    """A prompt beyond the context."""
    chat = chat_of(rng, words=2 * client.max_context, stream=rng.random() < 0.5)
    return _checked(*client.ask("POST", "/v1/chat/completions", chat), (400,))


def no_route(client: Client, rng: random.Random) -> Seen:
    """A place that is none."""
    method, path, status = rng.choice((("GET", "/no", 404), ("GET", "/v1/embeddings", 405), ("POST", "/health", 405)))
    return _checked(*client.ask(method, path, b"{}" if method == "POST" else None), (status,))


def _cut(connection: http.client.HTTPConnection, rng: random.Random) -> None:
    """Leave, politely or not."""
    if connection.sock is not None and rng.random() < 0.5:
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


KINDS: tuple[tuple[Kind, int], ...] = (
    (known_chat, 16),
    (known_chat_streamed, 16),
    (sampled_chat, 6),
    (other_answer, 14),
    (small_route, 10),
    (leave_stream, 10),
    (leave_before_answer, 10),
    (leave_in_body, 5),
    (bad_body, 5),
    (bad_field, 5),
    (too_long, 2),
    (no_route, 1),
)
"""Each kind, and how often it comes."""


def choose(seed: int, number: int) -> tuple[Kind, random.Random]:
    """The kind of a request and its generator: the same for a seed, whichever client sends it."""
    rng = random.Random(f"{seed} {number}")
    return rng.choices([kind for kind, _ in KINDS], [weight for _, weight in KINDS])[0], rng


def fillers(max_context: int, most: int) -> Iterator[dict[str, Any]]:
    """Long prompts that are all different, to touch all of a cache."""
    for number in range(most):
        yield chat_of(random.Random(f"fill {number}"), words=max_context // 8, max_tokens=1)
