"""The picture of a session shows what was typed, answered and noted."""

from __future__ import annotations

import io
from typing import Any

import pytest
import screenshot_repl
from fake_llm import FakeLLM

from edgellm.cli.repl.live_screen import make_console


def test_a_session_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    llm: Any = FakeLLM()
    llm.script = [["Some **bold** words"]]
    console = make_console(record=True, file=io.StringIO(), width=80, force_terminal=True, color_system="truecolor")
    screenshot_repl.hold(llm, "smollm2", ["Q1", "/tokens"], console)
    text = console.export_text(clear=False)
    assert "> Q1\nSome bold words\n\n> /tokens\n41 tokens in 1 turn" in text
    assert llm.params[0].temperature == 0.0
    assert "bold" in console.export_svg(title="x")
