"""tools/bench_long.py: a straight line is told from a bent one, and a whole small measurement."""

from __future__ import annotations

import json
from pathlib import Path

import bench_long
import numpy as np
import pytest
from tiny_models import write_tiny


def test_the_line_through_the_chunks() -> None:
    straight = bench_long.summarize({"seconds": list(0.01 + 0.001 * np.arange(100)), "resident": [1e6] * 100})
    assert (straight["constant_ms"], straight["slope_us"]) == (10.0, 1000.0) and abs(straight["bend"]) < 1e-3
    assert straight["ms_per_chunk"][0] < straight["ms_per_chunk"][-1] and straight["resident_mb"] == [1.0] * 10
    bent = bench_long.summarize({"seconds": list(0.01 + 0.0001 * np.arange(100) ** 2), "resident": [1e6] * 100})
    assert bent["bend"] > 1


def test_a_whole_measurement(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_tiny(tmp_path / "m.gguf")
    assert bench_long.main([str(path), "-p", "6000", "-w", "7000", "--window", "100", "--sinks", "2", "-t", "1"]) == 0
    text, last = capsys.readouterr().out.rstrip().rsplit("\n", 1)
    assert "window: ms a chunk of 512" in text and "all: resident MB" in text
    results = json.loads(last)["results"]
    assert results["window"]["total_s"] > 0 and len(results["all"]["ms_per_chunk"]) == 10
