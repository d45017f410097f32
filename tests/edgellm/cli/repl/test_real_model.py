"""`edgellm chat` with a real model at a pseudo-terminal: a long prompt is told about, stopped, and the session goes on."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

if sys.platform == "win32":
    pytest.skip("Windows has no pseudo-terminal that Python can open", allow_module_level=True)

from pseudo_terminal import PseudoTerminal, plain

pytestmark = pytest.mark.model
LIMIT_S = 240.0  # the kernels may have to be compiled first


def test_a_long_prompt_is_stopped_and_the_session_goes_on(smollm2_path: Path) -> None:
    arguments = ["-m", "edgellm", "chat", str(smollm2_path), "-n", "8", "--temperature", "0", "--no-history"]
    with PseudoTerminal(arguments) as terminal:
        terminal.wait_for("> ", LIMIT_S)
        terminal.type(f"\x1b[200~{'word and more, ' * 900}\x1b[201~\r")
        terminal.wait_for("reading 3", LIMIT_S)
        terminal.type("\x03")
        terminal.wait_for("(stopped before the first word; here it is again)")
        terminal.wait_for("[pasted")
        terminal.type("\x03")
        terminal.wait_for("Ask something")
        terminal.type("Hello\r")
        terminal.wait_for("Hello")
        terminal.wait_for("> ", LIMIT_S)
        terminal.type("/tokens\r")
        terminal.wait_for("in 1 turn, of a context of")
        terminal.type("/show info\r")
        terminal.wait_for("a llama model of 135 million parameters")
        terminal.wait_for("> ", LIMIT_S)  # before that the terminal is not the prompt's, and would keep the key
        terminal.type("\x04")
        assert terminal.wait_for_end() == 0
        assert re.search(r"reading 3\d+ tokens: \d+ %", plain(terminal.shown))
