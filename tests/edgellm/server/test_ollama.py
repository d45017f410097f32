"""Ollama's routes without a client: what is wrong is said as its clients read it. `clients/test_ollama.py` has the rest."""

from __future__ import annotations

import httpx
import pytest


@pytest.mark.parametrize(
    "body",
    [{"format": "xml"}, {"options": 3}, {"options": {"temperature": "x"}}, {"suffix": "x"}, {"images": ["aGk="]}],
)
def test_a_wrong_field_is_named(client: httpx.Client, body: dict[str, object]) -> None:
    answer = client.post("/api/generate", json={"model": "tiny", "prompt": "the", **body})
    assert answer.status_code == 400 and isinstance(answer.json()["error"], str)


def test_other_mistakes_are_said_in_words_too(client: httpx.Client) -> None:
    for answer in (
        client.post(
            "/api/chat", json={"model": "tiny", "messages": [{"role": "user", "content": "a", "images": ["b"]}]}
        ),
        client.post("/api/chat", content="no", headers={"content-type": "application/json"}),
        client.post("/api/chat", content="no"),
        client.post("/api/embeddings", json={"model": "tiny"}),
        client.get("/api/no"),
    ):
        assert answer.status_code in (400, 404, 415) and isinstance(answer.json()["error"], str)
