"""Progress: a bar for people, a line a stage for files, silence for what is quick."""

from __future__ import annotations

import io
import sys

import pytest

from edgellm.cli.progress import Progress


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr("edgellm.cli.progress.time.monotonic", lambda: now[0])
    return now


def test_one_plain_line_a_slow_stage(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress() as progress:
        for done in range(11):
            progress("download smollm2", done * 10_000_000, 100_000_000)
        progress("compile kernels", 0, 14)
        progress("compile kernels", 14, 14)
    expected = "edgellm: download smollm2 (100 MB)\nedgellm: compile the kernels for this CPU (once)\n"
    assert capsys.readouterr() == ("", expected)


def test_what_is_done_already_or_over_at_once_is_not_mentioned(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    with Progress() as progress:
        progress("compile kernels", 14, 14)
        for done in range(100):
            progress("load", done, 100)
            clock[0] += 0.004
    assert capsys.readouterr().err == ""


def test_a_stage_that_turns_out_slow_is_mentioned(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    with Progress() as progress:
        progress("load", 0, 100)
        clock[0] += 0.6
        progress("load", 10, 100)
        progress("load", 20, 100)
    assert capsys.readouterr().err == "edgellm: load the model\n"


def test_a_bar_on_a_terminal_that_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    with Progress() as progress:
        progress("download smollm2", 10_000_000, 100_000_000)
        progress("download smollm2", 50_000_000, 100_000_000)
        progress("download smollm2", 100_000_000, 100_000_000)
        progress("wait", 0, 0)
    shown = screen.getvalue()
    assert "download smollm2 (100 MB)" in shown and "10 %" in shown and "wait" in shown
    assert shown.rstrip().endswith("\x1b[2K")  # erased
