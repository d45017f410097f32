"""tools/bench_gil.py: percentiles, and a run on a tiny model."""

from __future__ import annotations

import json
from pathlib import Path

import bench_gil
import pytest
from tiny_models import write_tiny


def test_percentiles_are_in_milliseconds() -> None:
    assert bench_gil.percentiles([i / 1000 for i in range(100)]) == {"p50": 50, "p90": 90, "p99": 99, "p100": 99}


def test_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_gil, "QUIET_S", 0.1)
    monkeypatch.setattr(bench_gil, "HEAD_START_S", (0.0, 0.01))
    model = write_tiny(tmp_path / "m.gguf", formats="Q8_0")
    assert bench_gil.main([str(model), "-t", "1", "-p", "90", "-n", "5", "-r", "2"]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    names = ["quiet", "beside a prompt", "beside decoding", "stopping in a prompt", "stopping in decoding"]
    assert all(found[name]["p50"] <= found[name]["p100"] for name in names)
    with pytest.raises(SystemExit):
        bench_gil.main(["-p", "0"])
