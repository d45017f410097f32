"""tools/soak_server.py on a tiny model: a short soak leaves nothing behind, and what is left behind is found."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
import soak_requests
import soak_server
from tiny_models import write_tiny


def test_a_short_soak(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_tiny(tmp_path / "tiny.gguf", formats="Q8_0", vocab=300)
    # So few requests warm nothing up: memory may still grow by what the first of a kind needs. 5000 hold 2 %.
    code = soak_server.main([str(path), "-n", "150", "-t", "2", "--max-context", "256", "--growth", "0.2"])
    text, last = capsys.readouterr().out.rstrip().rsplit("\n", 1)
    figures = json.loads(last)
    assert code == 0 and "nothing was left behind" in text, text
    assert sum(row["requests"] for row in figures["table"].values()) == 150
    assert figures["table"]["leave_before_answer"]["requests"] and figures["gauges"]["cache_blocks_in_use"] == 0


def test_what_is_left_behind_is_told() -> None:
    before = {"resident": 100.0, "anonymous": 50.0, "threads": 9, "files": 8}
    names = ("requests_open", "sequences_running", "sequences_waiting", "cache_blocks_in_use")
    none = dict.fromkeys(names, 0)
    assert soak_server.check_rest(before, before, none, 0.02) == []
    assert soak_server.check_rest(before, before | {"resident": 101.9}, none, 0.02) == []
    for after, gauges, word in (
        (before | {"resident": 102.1}, none, "memory"),
        (before | {"threads": 30}, none, "threads"),
        (before | {"files": 30}, none, "files"),
        *((before, none | {name: 1}, name) for name in names),
        (before, {}, "requests_open"),
    ):
        assert word in soak_server.check_rest(before, after, gauges, 0.02)[0]


def test_a_wrong_answer_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    client = soak_requests.Client("http://127.0.0.1:1", 256)
    client.known = [({"messages": []}, "right")]
    answer = json.dumps({"choices": [{"message": {"content": "wrong"}}]}).encode()
    monkeypatch.setattr(client, "ask", lambda *args: (200, answer))
    assert soak_requests.known_chat(client, random.Random(0)).fault == "'wrong' instead of 'right'"
    monkeypatch.setattr(client, "ask", lambda *args: (500, b"{}"))
    assert "500 instead of" in (soak_requests.bad_body(client, random.Random(0)).fault or "")


def test_a_seed_gives_the_same_requests() -> None:
    first, again = ([soak_requests.choose(7, i)[0] for i in range(300)] for _ in range(2))
    assert first == again and set(first) == {kind for kind, _ in soak_requests.KINDS}
