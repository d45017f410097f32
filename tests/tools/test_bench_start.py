"""tools/bench_start.py: what is timed, what is summed, what is said when a run fails."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import bench_start
import pytest
from tiny_models import write_tiny


def test_the_first_byte_is_what_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    code = "import os, sys, time; sys.stdout.write(os.environ['EDGELLM_HOME']); sys.stdout.flush(); time.sleep(0.8)"
    assert 0 < bench_start.time_to_first_byte([sys.executable, "-c", code], "home") < 0.7
    assert "PYTHONDONTWRITEBYTECODE" not in bench_start.make_environment(None)


def test_a_run_that_fails_says_why() -> None:
    with pytest.raises(bench_start.RunFailed, match="it broke"):
        bench_start.time_to_first_byte([sys.executable, "-c", "import sys; sys.exit('it broke')"], None)
    with pytest.raises(bench_start.RunFailed, match="no output, exit code 0"):
        bench_start.time_to_first_byte([sys.executable, "-c", ""], None)


def test_imports_are_summed_by_package() -> None:
    report = (
        "import time: self [us] | cumulative | imported package\n"
        "import time:      1000 |       1000 |   numpy._core\n"
        "import time:       500 |       1500 | numpy\n"
        "import time:      2500 |       2500 | json\nedgellm: compile kernels\n"
    )
    assert bench_start.sum_imports(report) == {"all": 0.004, "json": 0.0025, "numpy": 0.0015}


def test_a_whole_measurement(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_tiny(tmp_path / "m.gguf")
    assert bench_start.main([str(path), "-r", "1"]) == 0
    text, last = capsys.readouterr().out.rstrip().rsplit("\n", 1)
    assert "caches warm" in text and "loading the model" in text and "numpy" in text
    figures = json.loads(last)["results"][str(path)]
    assert 0 < figures["load_s"] < figures["first_token_s"] and figures["ttft_s"] > 0


def test_without_a_template_text_is_continued(tmp_path: Path) -> None:
    path = write_tiny(tmp_path / "m.gguf", drop=["tokenizer.chat_template"])
    assert not bench_start.has_template(str(path))
    assert "--raw" in bench_start.run_command("m", raw=True) and "--raw" not in bench_start.run_command("m", raw=False)


def test_a_model_that_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "m.gguf").write_bytes(b"text")
    assert bench_start.main([str(tmp_path / "m.gguf")]) == 2
    assert "not a GGUF file" in capsys.readouterr().err
