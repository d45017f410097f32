"""Many requests at once in a process of its own, whatever Numba's threads are told to be. Case O13: no abort, no freeze."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from server_process import serving
from soak_requests import Client
from tiny_models import write_tiny

LAYERS = ["workqueue", "omp", "tbb"]
TWO_THREADS = """
import sys, threading
from edgellm import LLM
with LLM.load(sys.argv[1], threads=2, max_sequences=2) as llm:
    alone = [llm.generate(f"word {i}", max_tokens=30, temperature=0).text for i in range(2)]
    found = {}
    def work(i):
        found[i] = [llm.generate(f"word {i}", max_tokens=30, temperature=0).text for _ in range(5)]
    threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    print(all(found[i] == [alone[i]] * 5 for i in range(2)))
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_tiny(tmp_path_factory.mktemp("layers") / "tiny.gguf", vocab=300))


def chat(i: int, **fields: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": f"word {i} " * (i + 1)}]
    return {"messages": messages, "max_tokens": 40, "temperature": 0, "ignore_eos": True, **fields}


def ask_or_leave(client: Client, i: int) -> str | None:
    """Half are streamed; of these, and of the others, half leave midway."""
    body = chat(i, stream=i % 2 == 1)
    connection = client.send("POST", "/v1/chat/completions", json.dumps(body).encode())
    try:
        if i % 4 >= 2:
            if i % 2:
                connection.getresponse().readline()
            return None
        answer = connection.getresponse()
        data = answer.read().decode()
        assert answer.status == 200, data
        if not i % 2:
            return str(json.loads(data)["choices"][0]["message"]["content"])
        events = [json.loads(line.removeprefix("data: ")) for line in data.split("\n\n")[:-2]]
        return "".join(event["choices"][0]["delta"].get("content", "") for event in events)
    finally:
        connection.close()


@pytest.mark.parametrize("layer", LAYERS)
def test_o13_eight_clients(model: str, layer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_THREADING_LAYER", layer)
    with serving(model, "--max-num-seqs", "4", "-t", "2") as server:
        server.wait_until_ready()
        client, is_over = Client(server.address, 256), threading.Event()
        alone = [client.text_of(chat(i)) for i in range(8)]
        healths: list[int] = []

        def look() -> None:
            while not is_over.is_set():
                healths.append(client.ask("GET", "/health")[0])
                healths.append(client.ask("GET", "/v1/models")[0])
                healths.append(client.ask("POST", "/tokenize", {"content": "word"})[0])

        looking = threading.Thread(target=look)
        looking.start()
        with ThreadPoolExecutor(8) as pool:
            together = list(pool.map(lambda i: ask_or_leave(client, i), range(8)))
        is_over.set()
        looking.join()
        assert server.process.poll() is None, "it lives"
        assert [t for t in together if t is not None] == [
            a for a, t in zip(alone, together, strict=True) if t is not None
        ]
        assert healths and set(healths) == {200}
        gauges = server.settle()
        assert gauges["requests_open"] == gauges["sequences_running"] == gauges["cache_blocks_in_use"] == 0
        with urllib.request.urlopen(f"{server.address}/health", timeout=5) as answer:
            assert answer.status == 200


@pytest.mark.parametrize("layer", LAYERS)
def test_o13_two_threads_of_one_program(model: str, layer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_THREADING_LAYER", layer)
    root = Path(__file__).resolve().parents[3]
    done = subprocess.run(
        [sys.executable, "-c", TWO_THREADS, model], cwd=root, capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stdout.strip()) == (0, "True"), done.stderr
