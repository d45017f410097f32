"""tools/bench_server.py on a tiny model: a real server under a small load, and what it makes of servers that fail."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import bench_server
import pytest
import server_load
from tiny_models import write_tiny


def test_a_small_load(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_tiny(tmp_path / "m.gguf", formats="Q8_0", tied=False, vocab=300)
    monkeypatch.setattr(bench_server, "LONG_PROMPT", 100)
    assert bench_server.main([str(path), "-c", "2", "-q", "4", "-n", "8", "-r", "1"]) == 0
    text, last = capsys.readouterr().out.rstrip().rsplit("\n", 1)
    assert "a running answer waited" in text
    found = json.loads(last)["results"][0]
    assert found["streams"]["2"]["tps"] > 0 and found["streams"]["1"]["first_p50_s"] > 0


def test_a_server_that_does_not_come(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    port = bench_server.free_port()
    with (
        pytest.raises(RuntimeError, match="no such server"),
        bench_server.serving([sys.executable, "-c", "raise SystemExit('no such server')"], port),
    ):
        pass
    (tmp_path / "m.gguf").write_bytes(b"text")
    assert bench_server.main([str(tmp_path / "m.gguf")]) == 2
    assert "not a GGUF file" in capsys.readouterr().err


def test_requests_are_the_same_each_time() -> None:
    assert server_load.make_requests(5, 10, 3) == server_load.make_requests(5, 10, 3)
    assert server_load.make_requests(5, 10, 3) != server_load.make_requests(5, 10, 4)
    assert server_load.quantile([3.0, 1.0, 2.0], 0.5) == 2.0 and server_load.quantile([3.0, 1.0], 0.99) == 3.0
