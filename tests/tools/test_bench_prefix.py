"""tools/bench_prefix.py on a tiny model: three ways to the first token, and answers that are compared."""

from __future__ import annotations

import json
import os
from pathlib import Path

import bench_prefix
import pytest
from tiny_models import write_tiny


def test_cold_memory_and_disk(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_tiny(tmp_path / "m.gguf")
    home = os.environ.get("EDGELLM_HOME")
    assert bench_prefix.main([str(path), "-p", "150", "-q", "3", "-r", "1"]) == 0
    text, last = capsys.readouterr().out.rstrip().rsplit("\n", 1)
    assert "answers equal" in text and os.environ.get("EDGELLM_HOME") == home
    figures = json.loads(last)["results"][str(path)]
    assert figures["same_bits"] and figures["memory_s"] > 0 and figures["disk_share"] > 0


def test_an_answer_that_differs_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = {
        "cold_s": 1.0,
        "memory_s": 0.1,
        "memory_share": 0.1,
        "disk_s": 0.2,
        "disk_share": 0.2,
        "same_bits": False,
    }
    monkeypatch.setattr(bench_prefix, "measure", lambda model, args: figures)
    assert bench_prefix.main([str(write_tiny(tmp_path / "m.gguf"))]) == 1
    assert "answers DIFFER" in capsys.readouterr().out


def test_a_model_that_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "m.gguf").write_bytes(b"text")
    assert bench_prefix.main([str(tmp_path / "m.gguf")]) == 2
    assert "not a GGUF file" in capsys.readouterr().err
