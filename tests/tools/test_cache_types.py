"""tools/cache_types.py with workers that are none: what is compared with what, the table, the page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

import cache_types
import numpy as np
import pytest
from tiny_models import write_tiny


class FakeWorker:
    """Logits that move away from f16's by 0.1 for each further type; q8_0 decodes twice as fast as f16."""

    made: ClassVar[list[tuple[str, str, int]]] = []

    def __init__(self, side: str, python: str, model: str, threads: int, context: int, cache_type: str) -> None:
        self.hello = {"version": "1", "vocab_size": 128}
        self.type = cache_type
        FakeWorker.made.append((side, cache_type, context))

    def ask(self, do: str, **options: Any) -> float:
        if do == "write_logits":
            logits = np.tile(np.arange(128, dtype=np.float32) / 32, (len(options["ids"]), 1))
            logits[:, 0] += 0.0 if self.type == "f16" else 0.1
            logits.tofile(options["path"])
            return 0.0
        if do == "decode":
            return 1.0 if self.type == "q8_0" else 2.0
        assert do == "prefill" and len(options["ids"]) - options["depth"] == cache_types.PREFILL_TOKENS
        return 4.0

    def close(self) -> None:
        pass


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    FakeWorker.made = []
    monkeypatch.setattr(cache_types, "Worker", FakeWorker)
    return str(write_tiny(tmp_path / "tiny.gguf"))


def test_rows_page_and_json(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.md"
    options = ["--types", "f16", "q8_0", "--peer-types", "q4_0", "-n", "40", "-d", "100", "-r", "2"]
    assert cache_types.main([model, *options, "--markdown", str(page)]) == 0
    text, last = capsys.readouterr().out.rstrip().rsplit("\n", 1)
    rows = json.loads(last)["results"][0]["rows"]
    assert [(row["side"], row["type"]) for row in rows] == [
        ("edgellm", "f16"),
        ("edgellm", "q8_0"),
        ("llama.cpp", "q4_0"),
    ]
    assert rows[0]["mean_kl"] == 0 and rows[1]["mean_kl"] > 0 and rows[1]["same_best_id"] == 1
    assert (rows[0]["decode"], rows[1]["decode"], rows[1]["prefill"]) == (1.0, 2.0, 1.0)
    assert (rows[0]["bytes_per_token"], rows[1]["bytes_per_token"]) == (384.0, 144.0)  # heads of 8: values are padded
    assert "edgellm q8_0" in text and "| edgellm q8_0 |" in page.read_text()
    context = 100 + cache_types.PREFILL_TOKENS + cache_types.DECODE_TOKENS + 1
    assert FakeWorker.made == [
        ("edgellm", "f16", context),
        ("edgellm", "q8_0", context),
        ("llama.cpp", "q4_0", context),
    ]


def test_the_text_has_to_be_long_enough(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cache_types.main([model, "-n", "100000000"]) == 2
    assert "the text has only" in capsys.readouterr().err
