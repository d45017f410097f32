"""Clients of a server that speaks OpenAI's interface, all in one thread, and when each piece of an answer came.

Knows HTTP and server-sent events as far as chat completions need them: sockets and one selector, because clients on the cores
that compute must cost little. Used by bench_server.py.
"""

from __future__ import annotations

import json
import random
import selectors
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

QUESTIONS = (
    "Tell me a story about {}.",
    "What should I know about {} before I begin? Explain it to a beginner, please.",
    "Write a letter to a friend in which you describe {} and why it matters to you.",
    "How did people learn about {}, and what did they think of it a hundred years ago?",
    "I have to give a short talk about {} tomorrow. Can you write one for me that takes about two minutes, and is not too dry?",
    "Give me advice: my neighbour knows everything about {} and I know nothing. What would be good questions to ask him?",
)
TOPICS = (
    "a harbour in winter",
    "baking bread",
    "the night train to the mountains",
    "keeping bees",
    "an old clock",
    "learning to sail",
    "the weather on other planets",
    "growing tomatoes on a balcony",
    "a library that never closes",
    "repairing bicycles",
    "the history of maps",
    "a dog that was afraid of the sea",
    "playing chess by post",
    "the first day at school",
)
PAUSE_S = 0.05
"""Mean of the random pause of a client before each of its requests."""
TIMEOUT_S = 600


@dataclass(frozen=True)
class Request:
    """A prompt and how long its answer may be, in tokens."""

    prompt: str
    max_tokens: int
    seed: int


@dataclass
class Answer:
    """What came: times are those of time.perf_counter, one for each piece that carried text. tokens: as the server counted them,
    or the pieces where it does not."""

    sent_s: float
    times: list[float] = field(default_factory=list)
    tokens: int = 0
    text: str = ""
    error: str = ""

    @property
    def ttft_s(self) -> float:
        """Seconds to the first piece."""
        return self.times[0] - self.sent_s

    @property
    def gaps_s(self) -> list[float]:
        """Seconds between pieces."""
        return [later - sooner for sooner, later in zip(self.times, self.times[1:], strict=False)]


def make_requests(count: int, tokens: int, seed: int) -> list[Request]:
    """Questions as people ask them, answers of half of `tokens` to one and a half times."""
    choose = random.Random(seed)
    found = []
    for number in range(count):
        prompt = choose.choice(QUESTIONS).format(choose.choice(TOPICS))
        found.append(Request(prompt, choose.randrange(tokens // 2, tokens * 3 // 2 + 1), 1000 * seed + number))
    return found


def long_text(words: int, seed: int) -> str:
    """A text of so many words, another one for each seed."""
    choose, text = random.Random(seed), list[str]()
    while len(text) < words:
        text += choose.choice(QUESTIONS).format(choose.choice(TOPICS)).split()
    return " ".join(text[:words])


class Call:
    """A streamed chat on its way. answer: what has come so far."""

    def __init__(self, port: int, request: Request, temperature: float = 0.8) -> None:
        body = {
            "model": "model",
            "messages": [{"role": "user", "content": request.prompt}],
            "max_tokens": request.max_tokens,
            "temperature": temperature,
            "seed": request.seed,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        data = json.dumps(body).encode()
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
        )
        self.answer = Answer(time.perf_counter())
        self.socket = socket.create_connection(("127.0.0.1", port), TIMEOUT_S)
        self.socket.sendall(head.encode() + data)
        self._rest = b""
        self._status = 0

    def read(self) -> bool:
        """Take what has come. -> True at the end."""
        data = self.socket.recv(1 << 16)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._take(line)
        if data:
            return False
        if self._status != 200:
            self.answer.error = f"{self._status} {self._rest[:500]!r}"
        self.socket.close()
        return True

    def _take(self, line: bytes) -> None:
        """A line; those of HTTP's own between the events say nothing here."""
        if line.startswith(b"HTTP/1.1 "):
            self._status = int(line.split()[1])
        if not line.startswith(b"data: {"):
            return
        chunk: dict[str, Any] = json.loads(line[6:])
        answer = self.answer
        if "error" in chunk:
            answer.error = str(chunk["error"])
        for choice in chunk.get("choices", ()):
            if text := choice["delta"].get("content"):
                answer.times.append(time.perf_counter())
                answer.text += text
                answer.tokens += 1
        if usage := chunk.get("usage"):
            answer.tokens = usage["completion_tokens"]


class Calls:
    """Several at once."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self.running = 0

    def begin(self, call: Call) -> Call:
        """Listen to one more."""
        self._selector.register(call.socket, selectors.EVENT_READ, call)
        self.running += 1
        return call

    def wait(self, seconds: float | None = None) -> list[Call]:
        """Read what comes, for so long at most if nothing does. -> those that have ended."""
        ended = []
        for key, _ in self._selector.select(seconds):
            call: Call = key.data
            at = call.socket
            if self._read(call):
                self._selector.unregister(at)
                self.running -= 1
                ended.append(call)
        return ended

    @staticmethod
    def _read(call: Call) -> bool:
        try:
            return call.read()
        except OSError as error:
            call.answer.error = str(error)
            return True


def ask(port: int, request: Request, temperature: float = 0.8) -> Answer:
    """Send one streamed chat and read it to its end. Raises OSError where nobody listens; what the server says is in `error`."""
    calls = Calls()
    call = calls.begin(Call(port, request, temperature))
    while calls.running:
        calls.wait()
    return call.answer


def run(port: int, requests: Sequence[Request], streams: int, seed: int = 0) -> tuple[float, list[Answer]]:
    """Let `streams` clients send the requests, each one after the other with random pauses. -> (seconds, answers in order)."""
    choose, calls = random.Random(seed), Calls()
    answers: list[Answer] = []
    began = time.perf_counter()
    due = [began + choose.expovariate(1 / PAUSE_S) for _ in range(streams)]  # when clients that pause send again
    while calls.running or (due and len(answers) < len(requests)):
        due.sort()
        while due and due[0] <= time.perf_counter() and len(answers) < len(requests):
            due.pop(0)
            answers.append(calls.begin(Call(port, requests[len(answers)])).answer)
        is_next = due and len(answers) < len(requests)
        for _ in calls.wait(max(due[0] - time.perf_counter(), 0.0) if is_next else None):
            due.append(time.perf_counter() + choose.expovariate(1 / PAUSE_S))
    return time.perf_counter() - began, answers


def disturb(port: int, running: Sequence[Request], late: Request, after: int) -> tuple[list[Answer], Answer]:
    """Send `late` once the running answers have `after` pieces each. -> theirs, and its own."""
    calls = Calls()
    begun = [calls.begin(Call(port, request)).answer for request in running]
    while min(len(answer.times) for answer in begun) < after and calls.running == len(begun):
        calls.wait()
    answer = calls.begin(Call(port, late)).answer
    while calls.running:
        calls.wait()
    return begun, answer


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which `share` of the values lie; NaN for none."""
    return sorted(values)[min(int(share * len(values)), len(values) - 1)] if values else float("nan")
