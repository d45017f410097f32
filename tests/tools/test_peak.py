"""tools/peak.py: a table, a section, a JSON line."""

from __future__ import annotations

import json
from pathlib import Path

import peak
import pytest


def test_a_whole_measurement(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.md"
    assert peak.main(["-t", "2", "-r", "1", "--markdown", str(page)]) == 0
    text, last = capsys.readouterr().out.rstrip().rsplit("\n", 1)
    shown = json.loads(last)["results"]
    assert [r["threads"] for r in shown] == [1, 2] and all(r["multiply_add_gops"] > 0 < r["read_gbps"] for r in shown)
    assert text.startswith("threads") and "| threads | multiply-add GOP/s |" in page.read_text()


def test_what_a_level_lacks_is_a_dash() -> None:
    row = {"threads": 1, "multiply_add_gops": 1.6, "multiply_gops": None, "read_gbps": 9.87}
    assert peak.make_rows([row]) == [["1", "2", "-", "9.9"]]


def test_refusals(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit):
        peak.main(["-t", "0"])
    page = tmp_path / "page.md"
    page.write_text("no markers")
    row = {"threads": 1, "multiply_add_gops": 1, "multiply_gops": 1, "read_gbps": 1}
    monkeypatch.setattr(peak, "measure", lambda threads, rounds: row)
    assert peak.main(["-t", "1", "--markdown", str(page)]) == 2
    assert "begin peak" in capsys.readouterr().err
