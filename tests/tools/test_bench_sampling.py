"""tools/bench_sampling.py on a tiny model: every way is measured and the last line is JSON."""

from __future__ import annotations

import json
from pathlib import Path

import bench_sampling
import pytest
from tiny_models import write_tiny


def test_every_way_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_tiny(tmp_path / "m.gguf")
    assert bench_sampling.main([str(path), "-r", "1", "-c", "50", "--text", "a cat and a dog"]) == 0
    text, last = capsys.readouterr().out.rstrip().rsplit("\n", 1)
    found = json.loads(last)
    assert found["us"].keys() == found["percent"].keys() == bench_sampling.WAYS.keys() and "min_p alone" in text
    assert all(us > 0 for us in found["us"].values()) and found["step_us"] > 0
