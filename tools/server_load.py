"""Clients of a server that speaks OpenAI's interface, each in a thread of its own, and when each piece of an answer came.

Knows HTTP and server-sent events as far as chat completions need them. `http.client` and threads, because a client on the same
cores must cost little. Used by bench_server.py.
"""

from __future__ import annotations

import http.client
import json
import random
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

WORDS = [
    "the",
    "harbour",
    "was",
    "rebuilt",
    "after",
    "a",
    "storm",
    "and",
    "people",
    "of",
    "the",
    "town",
    "came",
    "to",
    "see",
    "boats",
    "that",
    "carried",
    "stone,",
    "timber,",
    "salt",
    "and",
    "letters",
    "from",
    "every",
    "coast",
    "where",
    "somebody",
    "had",
    "written",
    "of",
    "weather",
    "prices",
    "weddings",
    "debts",
    "and",
    "the",
    "price",
    "of",
    "bread",
]
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
    """Prompts of 8 to 150 words, answers of half of `tokens` to one and a half times."""
    choose = random.Random(seed)
    found = []
    for number in range(count):
        words = " ".join(choose.choice(WORDS) for _ in range(choose.randrange(8, 150)))
        prompt = f"Write a long story, number {number}, with these words in it: {words}."
        found.append(Request(prompt, choose.randrange(tokens // 2, tokens * 3 // 2 + 1), number))
    return found


def ask(port: int, request: Request, temperature: float = 0.8, on_piece: Callable[[], None] | None = None) -> Answer:
    """Send one streamed chat and read it to its end. An error of the server is the answer's `error`."""
    body = {
        "model": "model",
        "messages": [{"role": "user", "content": request.prompt}],
        "max_tokens": request.max_tokens,
        "temperature": temperature,
        "seed": request.seed,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
    answer = Answer(time.perf_counter())
    try:
        connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        if response.status != 200:
            answer.error = f"{response.status} {response.read(500)!r}"
            return answer
        for line in response:
            if line.startswith(b"data: {"):
                _take(answer, json.loads(line[6:]), on_piece)
    except OSError as error:
        answer.error = str(error)
    finally:
        connection.close()
    return answer


def _take(answer: Answer, chunk: dict[str, Any], on_piece: Callable[[], None] | None) -> None:
    if "error" in chunk:
        answer.error = str(chunk["error"])
    if usage := chunk.get("usage"):
        answer.tokens = usage["completion_tokens"]
    for choice in chunk.get("choices", ()):
        if text := choice["delta"].get("content"):
            answer.times.append(time.perf_counter())
            answer.text += text
            answer.tokens += 1
            if on_piece is not None:
                on_piece()


def run(port: int, requests: Sequence[Request], streams: int, seed: int = 0) -> tuple[float, list[Answer]]:
    """Let `streams` clients send the requests, each one after the other with random pauses. -> (seconds, answers in order)."""
    answers: list[Answer | None] = [None] * len(requests)
    numbers = iter(range(len(requests)))
    lock = threading.Lock()

    def client(name: int) -> None:
        pause = random.Random(seed * 1000 + name)
        while True:
            with lock:
                number = next(numbers, None)
            if number is None:
                return
            time.sleep(pause.expovariate(1 / PAUSE_S))
            answers[number] = ask(port, requests[number])

    began = time.perf_counter()
    side_by_side([lambda name=name: client(name) for name in range(streams)])
    return time.perf_counter() - began, [answer for answer in answers if answer is not None]


def side_by_side(works: Iterable[Callable[[], Any]]) -> None:
    """Run each in a thread; wait for all."""
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which `share` of the values lie; NaN for none."""
    return sorted(values)[min(int(share * len(values)), len(values) - 1)] if values else float("nan")
