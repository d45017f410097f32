"""tools/make_performance.py: which programs run, with which options, and what happens when one fails."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import make_performance
import pytest


def run(monkeypatch: pytest.MonkeyPatch, *options: str, codes: dict[str, int] | None = None) -> Any:
    """Return the exit code and {tool: options} of what would be run."""
    calls: list[list[str]] = []

    def call(command: list[str]) -> int:
        calls.append([Path(command[1]).stem, *command[2:]])
        return (codes or {}).get(Path(command[1]).stem, 0)

    monkeypatch.setattr(make_performance.subprocess, "call", call)
    monkeypatch.setattr("edgellm.hub.resolve", lambda name: Path("/vocabulary.gguf"))
    return make_performance.main(options), calls


def test_every_section_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    code, calls = run(monkeypatch, "--peer-python", "/p/python")
    assert code == 0
    tools = ["peak", "bench_formats", "bench_threads", *["compare_peers"] * 3, "cache_types"]
    assert [c[0] for c in calls] == tools
    assert all(c[c.index("--markdown") + 1] == str(make_performance.PAGE) for c in calls)
    assert calls[1][-1] == str(make_performance.PAGE.with_name("formats.svg"))
    assert calls[3][1:3] == ["smollm2", "gemma3-270m"] and calls[4] == [*calls[3], "--busy"] and "/p/python" in calls[3]
    assert calls[5] == [*calls[3], "-d", "4096"] and "/p/python" in calls[6]


def test_the_tools_know_their_options(monkeypatch: pytest.MonkeyPatch) -> None:
    _, calls = run(monkeypatch, "--quick")
    for name, *options in calls:
        tool = importlib.import_module(name)
        if hasattr(tool, "make_parser"):
            assert tool.make_parser().parse_args(options).rounds == 3
        else:
            with pytest.raises(SystemExit, match="0"):
                tool.main([*options, "--help"])


def test_big_models_are_made_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "llama-1b-random-Q4_0.gguf").touch()
    _, calls = run(monkeypatch, "--synthesise", str(tmp_path), "--skip", "peak", "formats", "threads")
    made = [c for c in calls if c[0] == "synthesise"]
    assert [c[c.index("--format") + 1] for c in made] == ["Q4_K_M", "Q8_0"]
    assert all(c[c.index("--vocabulary") + 1] == "/vocabulary.gguf" for c in made)
    assert [c[0] for c in calls[2:]] == ["compare_peers"] * 3 + ["cache_types"]
    assert sum("random" in word for word in calls[2]) == 3


def test_it_stops_at_the_first_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    code, calls = run(monkeypatch, codes={"bench_formats": 5})
    assert code == 5 and [c[0] for c in calls] == ["peak", "bench_formats"]
