"""Completions, embeddings, tokens, status."""

from __future__ import annotations

import base64
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import openai
import pytest
from running_server import OPTIONS, running

from edgellm import LLM
from edgellm.engine import Occupancy
from edgellm.server.models import ServedModels
from edgellm.server.settings import ServerSettings
from edgellm.server.statistics import Statistics


@pytest.fixture
def official(address: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0) as client:
        yield client


def test_completions_of_texts_and_ids(client: httpx.Client, tiny: Path) -> None:
    body = {"prompt": ["the", [70, 75, 72]], "max_tokens": 6, "temperature": 0, "n": 2, "logprobs": 1}
    done = client.post("/v1/completions", json=body).json()
    assert [choice["index"] for choice in done["choices"]] == [0, 1, 2, 3]
    with LLM.load(tiny, **OPTIONS) as llm:
        expected = [llm.generate(prompt, max_tokens=6, temperature=0).text for prompt in body["prompt"] for _ in (0, 1)]
    assert [choice["text"] for choice in done["choices"]] == expected
    assert len(done["choices"][0]["logprobs"]["tokens"]) == len(done["choices"][0]["logprobs"]["text_offset"])
    echoed = client.post("/v1/completions", json={**body, "echo": True, "prompt": "the", "n": 1}).json()
    assert echoed["choices"][0]["text"] == "the" + expected[0]
    assert client.post("/v1/completions", json={"prompt": "the"}).json()["usage"]["completion_tokens"] <= 16


def test_a_streamed_completion(official: openai.OpenAI) -> None:
    asked = {"model": "tiny", "prompt": "the", "max_tokens": 9, "temperature": 0}
    whole = official.completions.create(**asked).choices[0].text
    pieces = [chunk.choices[0].text for chunk in official.completions.create(**asked, stream=True)]
    assert "".join(pieces) == whole and len(pieces) > 2


@pytest.mark.parametrize("prompt", [None, [], [[]], [True], [["a"]], {"a": 1}, [1, "a"]])
def test_a_prompt_that_is_none(client: httpx.Client, prompt: object) -> None:
    answer = client.post("/v1/completions", json={"prompt": prompt})
    assert answer.status_code == 400 and answer.json()["error"]["param"] == "prompt"


def test_embeddings(official: openai.OpenAI, client: httpx.Client) -> None:
    found = official.embeddings.create(model="tiny", input=["the and", "is"])
    vectors = np.array([one.embedding for one in found.data])
    assert vectors.shape == (2, 64) and np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    body = {"input": "the and", "encoding_format": "base64", "dimensions": 16}
    short = client.post("/v1/embeddings", json=body).json()["data"][0]["embedding"]
    assert np.frombuffer(base64.b64decode(short), "<f4").shape == (16,)
    assert client.post("/v1/embeddings", json={"input": "a", "dimensions": 65}).status_code == 400


def test_tokens_there_and_back(client: httpx.Client) -> None:
    ids = client.post("/tokenize", json={"content": "the and"}).json()["tokens"]
    assert client.post("/detokenize", json={"tokens": ids}).json()["content"] == "the and"
    assert client.post("/detokenize", json={"tokens": [10**9]}).status_code == 400
    messages = [{"role": "user", "content": "Hi"}]
    assert "Hi" in client.post("/apply-template", json={"messages": messages}).json()["prompt"]


def test_status(client: httpx.Client) -> None:
    assert client.get("/health").json() == {"status": "ok"}
    assert [model["id"] for model in client.get("/v1/models").json()["data"]] == ["tiny"]
    assert client.get("/props").json()["total_slots"] == 4
    assert "edgellm_requests_answered_total" in client.get("/metrics").text


def test_metrics_tell_of_sequences_and_cache_blocks(client: httpx.Client) -> None:
    def gauges() -> dict[str, int]:
        found = re.findall(r'^edgellm_(\w+){model="tiny"} (\d+)$', client.get("/metrics").text, re.MULTILINE)
        return {name: int(value) for name, value in found}

    client.post("/v1/completions", json={"prompt": "the river and the stone " * 5, "max_tokens": 2})
    rest = gauges()
    assert rest["sequences_running"] == rest["sequences_waiting"] == rest["cache_blocks_in_use"] == 0
    assert rest["cache_blocks_kept"] > 0 and rest["cache_blocks_free"] > 0
    body = {"prompt": "a", "n": 8, "max_tokens": 250, "ignore_eos": True, "stream": True}
    with client.stream("POST", "/v1/completions", json=body) as answer:
        pieces = answer.iter_lines()
        next(pieces)
        at_work = gauges()
        assert at_work["sequences_running"] == 4 and at_work["sequences_waiting"] == 4, "max_sequences is 4"
        assert at_work["cache_blocks_in_use"] > 0
        blocks = [name for name in at_work if name.startswith("cache_blocks")]
        assert sum(at_work[name] for name in blocks) == sum(rest[name] for name in blocks)


def test_a_models_name_is_quoted() -> None:
    text = Statistics(lambda: 0).text({'a"b\\c\n': Occupancy(1, 2, 3, 4, 5)})
    assert 'edgellm_sequences_running{model="a\\"b\\\\c\\n"} 1\n' in text


def test_several_models_are_loaded_when_asked_for(tiny: Path) -> None:
    served = ServedModels({"a": str(tiny), "b": str(tiny), "bad": "/no/such.gguf"}, OPTIONS, keep_alive=0.4)
    with running(served, ServerSettings(port=0)) as address, httpx.Client(base_url=address, timeout=60) as client:
        body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}
        done = client.post("/v1/chat/completions", json=body | {"model": "b"}).json()
        assert done["model"] == "b"
        assert (
            client.post("/v1/chat/completions", json=body | {"model": "c"}).json()["error"]["code"] == "model_not_found"
        )
        bad = client.post("/v1/chat/completions", json=body | {"model": "bad"})
        assert bad.status_code == 500 and "no/such" in bad.json()["error"]["message"]
        for _ in range(100):
            if served.find("b").state == "idle":
                break
            threading.Event().wait(0.1)
        assert served.find("b").state == "idle"
        assert client.post("/v1/chat/completions", json=body | {"model": "b"}).status_code == 200
