"""Many at once: an answer has the same bits alone and among 31 others, streamed or not."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

WAYS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0, "logprobs": 3},
    "drawn": {"temperature": 1.1, "seed": 7, "logprobs": 3},
    "penalised": {"temperature": 0.9, "seed": 8, "frequency_penalty": 0.7, "top_p": 0.9, "logprobs": 3},
    "repeating": {"temperature": 0, "logprobs": 3, "prompt": [5, 6, 7, 8] * 12},
}
NUM_OTHERS = 31


def ask(client: httpx.Client, body: dict[str, Any]) -> tuple[str, list[Any]]:
    """The text, and what the model thought of each token, to the last digit."""
    answer = client.post("/v1/completions", json=body)
    assert answer.status_code == 200, answer.text
    if not body.get("stream"):
        choice = answer.json()["choices"][0]
        return choice["text"], choice["logprobs"]["token_logprobs"]
    text, logprobs = "", []
    for line in answer.text.splitlines():
        if line.startswith("data: {"):
            for choice in json.loads(line[6:])["choices"]:
                text += choice["text"]
                logprobs += (choice["logprobs"] or {}).get("token_logprobs", [])
    return text, logprobs


def other(client: httpx.Client, number: int) -> None:
    """Somebody else: long and short, streamed and not, and one in four leaves early."""
    body: dict[str, Any] = {"prompt": [(number * 31 + i) % 250 + 3 for i in range(5 + number * 5)], "seed": number}
    body |= {"max_tokens": 5 + number, "temperature": 1.0}
    if number % 4:
        assert client.post("/v1/completions", json=body | {"stream": number % 2 == 0}).status_code == 200
        return
    with client.stream("POST", "/v1/completions", json=body | {"stream": True}) as answer:
        next(answer.iter_raw(), b"")


@pytest.mark.parametrize("way", WAYS)
def test_an_answer_is_the_same_alone_and_among_many(client: httpx.Client, way: str) -> None:
    body = {"prompt": [9, 8, 7, 6, 5, 200, 201] * 4, "max_tokens": 60, "ignore_eos": True} | WAYS[way]
    alone = ask(client, body)
    assert len(alone[1]) == 60
    assert ask(client, body | {"stream": True}) == alone
    with ThreadPoolExecutor(NUM_OTHERS + 2) as pool:
        others = [pool.submit(other, client, number) for number in range(NUM_OTHERS)]
        ours = [pool.submit(ask, client, body | {"stream": stream}) for stream in (False, True)]
        assert [one.result() for one in ours] == [alone, alone]
        for one in others:
            one.result()
