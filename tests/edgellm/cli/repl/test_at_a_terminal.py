"""`edgellm chat` at a pseudo-terminal, with a model that says what it is told: keys in, screen out."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

if sys.platform == "win32":
    pytest.skip("Windows has no pseudo-terminal that Python can open", allow_module_level=True)

import pseudo_terminal
from pseudo_terminal import PseudoTerminal, plain

CHILD = str(Path(pseudo_terminal.__file__).with_name("repl_child.py"))
Start = Callable[..., PseudoTerminal]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Return a function that starts `edgellm chat` and waits for its prompt."""
    opened: list[PseudoTerminal] = []

    def open_one(*options: str, more: Mapping[str, str] | None = None, **values: Any) -> PseudoTerminal:
        environ = {"EDGELLM_HOME": str(tmp_path), "PYTHONPATH": str(Path(CHILD).parent), **(more or {})}
        arguments = [CHILD, json.dumps(values), *options]
        opened.append(PseudoTerminal(arguments, environ=environ))
        opened[-1].wait_for("> ")
        return opened[-1]

    yield open_one
    for terminal in opened:
        terminal.close()


def end(terminal: PseudoTerminal) -> list[Any]:
    """Leave, and return what the model was asked."""
    terminal.type("\x04")
    assert terminal.wait_for_end() == 0
    found = re.search(r"prompts: (\[.*\])", plain(terminal.shown))
    assert found is not None
    return [messages[-1]["content"] for messages in json.loads(found[1])]


def test_a_conversation_is_drawn_and_kept(start: Start, tmp_path: Path) -> None:
    terminal = start(script=[["Some **bold", "** words\n\n- one\n", "- two\x1b[31m"], ["Again"]])
    terminal.type("Q1\r")
    terminal.wait_for("• two\ufffd[31m")
    terminal.wait_for("> ")
    assert "Some bold words" in plain(terminal.shown) and "\x1b[1mbold" in terminal.shown
    terminal.type("/stats\r")
    terminal.wait_for("first token after")
    terminal.type("\x1b[A\x1b[A\r")  # twice Up: Q1
    terminal.wait_for("Again")
    terminal.wait_for("> ")
    assert end(terminal) == ["Q1", "Q1"]
    assert (tmp_path / "chat" / "typed.jsonl").read_text().splitlines() == ['"Q1"', '"/stats"', '"Q1"']
    again = start("--resume", "last", script=[["Three"]])
    assert "(loaded: 2 turns; the last question was 'Q1')" in plain(again.shown)
    again.type("\x1b[A\r")  # recalled from the other session
    again.wait_for("Three")
    again.wait_for("> ")
    assert end(again) == ["Q1"]


def test_nothing_is_kept_where_that_is_asked_for(start: Start, tmp_path: Path) -> None:
    terminal = start("--no-history")
    terminal.type("Q1\r")
    terminal.wait_for("Hello there")
    terminal.wait_for("> ")
    end(terminal)
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_stops_an_answer_and_keeps_it(start: Start) -> None:
    terminal = start(script=[["Half of it", 600.0, " never"], ["Yes"]])
    terminal.type("Q1\r")
    terminal.wait_for("Half of it")
    terminal.type("\x03")
    terminal.wait_for("(stopped)")
    terminal.wait_for("> ")
    terminal.type("Q2\r")
    terminal.wait_for("Yes")
    terminal.wait_for("> ")
    terminal.type("/show messages\r")
    terminal.wait_for("assistant: Half of it")
    terminal.wait_for("> ")
    assert end(terminal) == ["Q1", "Q2"]


def test_a_question_without_a_word_of_answer_is_offered_again(start: Start) -> None:
    terminal = start(script=[[600.0, "never"], ["Yes"]])
    terminal.type("What is it\r")
    terminal.wait_for("reading 20 tokens: 50 %")
    terminal.type("\x03")
    terminal.wait_for("here it is again")
    terminal.wait_for("What is it")
    terminal.type(" now?\r")
    terminal.wait_for("Yes")
    terminal.wait_for("> ")
    assert end(terminal) == ["What is it", "What is it now?"]


def test_edit_offers_the_last_question(start: Start) -> None:
    terminal = start()
    terminal.type("Q1\r")
    terminal.wait_for("Hello there")
    terminal.wait_for("> ")
    terminal.type("/edit\r")
    terminal.wait_for("here is its question")
    terminal.wait_for("Q1")
    terminal.type("b\r")
    terminal.wait_for("Hello there")
    terminal.wait_for("> ")
    assert end(terminal) == ["Q1", "Q1b"]


def test_ctrl_c_clears_the_line_and_twice_leaves(start: Start) -> None:
    terminal = start()
    terminal.type("half typed")
    terminal.wait_for("half typed")
    terminal.type("\x03")
    terminal.wait_for("Ask something")
    terminal.type("Q1\r")
    terminal.wait_for("Hello there")
    terminal.wait_for("Ask something")
    terminal.type("\x03")
    terminal.wait_for("Ctrl-C again leaves")
    terminal.type("\x03")
    assert terminal.wait_for_end() == 0
    assert '"content": "Q1"' in plain(terminal.shown) and "half typed" not in plain(terminal.shown).split("prompts:")[1]


def test_several_lines(start: Start) -> None:
    terminal = start()
    terminal.type("one\x1b\rtwo\r")
    terminal.wait_for("Hello there")
    terminal.wait_for("> ")
    terminal.type('"""a\rb"""\r')
    terminal.wait_for("Hello there")
    terminal.wait_for("> ")
    assert end(terminal) == ["one\ntwo", "a\nb"]


def test_a_paste_of_a_hundred_thousand_letters(start: Start) -> None:
    text = "word and more, " * 7000
    terminal = start(max_context=1_000_000)
    terminal.type("Sum up: ")
    terminal.type(f"\x1b[200~{text}\x1b[201~")
    terminal.wait_for("[pasted: 105,000 characters]")
    terminal.type(" Thanks.\r")
    terminal.wait_for("Hello there")
    terminal.wait_for("> ")
    assert end(terminal) == [f"Sum up: {text} Thanks."]


def test_completion_of_a_command(start: Start) -> None:
    terminal = start()
    terminal.type("/tok")
    terminal.wait_for("how many tokens")
    terminal.type("\t\r")
    terminal.wait_for("ens")
    terminal.type("\r")
    terminal.wait_for("0 tokens in 0 turns")
    terminal.wait_for("> ")
    assert end(terminal) == []


def test_a_dumb_terminal_gets_plain_text(start: Start) -> None:
    terminal = start(script=[["Some **bold** \x1b[31mwords"]], more={"TERM": "dumb"})
    terminal.type("Q1\n")
    terminal.wait_for("Some **bold** \ufffd[31mwords")
    terminal.wait_for("> ")
    assert end(terminal) == ["Q1"]
    assert "\x1b" not in terminal.shown.replace("\x1b[?2004h", "").replace("\x1b[?2004l", "")


def test_without_colours(start: Start) -> None:
    terminal = start(script=[["**a**\n\n```python\ndef f(): pass\n```"]], more={"NO_COLOR": "1"})
    terminal.type("Q1\r")
    terminal.wait_for("def f(): pass")
    terminal.wait_for("> ")
    assert end(terminal) == ["Q1"]
    assert "\x1b[1m" in terminal.shown and not re.search(r"\x1b\[(?:[\d;]*;)?[349]\d[;m]", terminal.shown)


def test_plain_text_on_request(start: Start) -> None:
    terminal = start("--plain", script=[["**a** \x1b[31mb"]])
    terminal.type("Q1\r")
    terminal.wait_for("**a** \ufffd[31mb")
    terminal.wait_for("> ")
    assert end(terminal) == ["Q1"]


def test_what_is_typed_while_an_answer_comes_is_the_next_question(start: Start) -> None:
    terminal = start(script=[["One", 1.0, " two"], ["Three"]])
    terminal.type("Q1\r")
    terminal.wait_for("One")
    terminal.type("Q2\r")
    terminal.wait_for("One two")
    terminal.wait_for("Three")
    terminal.wait_for("> ")
    assert end(terminal) == ["Q1", "Q2"]


def test_questions_from_a_pipe_and_answers_at_a_terminal(tmp_path: Path) -> None:
    code = f"import subprocess, sys; subprocess.run([sys.executable, {CHILD!r}, sys.argv[1]], input=b'Q1\\nQ2\\n')"
    environ = {"EDGELLM_HOME": str(tmp_path), "PYTHONPATH": str(Path(CHILD).parent)}
    with PseudoTerminal(["-c", code, json.dumps({"script": [["**one**"], ["two"]]})], environ=environ) as terminal:
        assert terminal.wait_for_end() == 0
        assert "\x1b[1mone" in terminal.shown and "two" in terminal.shown and "> " not in plain(terminal.shown)


def test_questions_from_a_terminal_and_answers_into_a_file(tmp_path: Path) -> None:
    out = tmp_path / "out"
    code = (
        f"import subprocess, sys; subprocess.run([sys.executable, {CHILD!r}, '{{}}'], stdout=open({str(out)!r}, 'wb'))"
    )
    environ = {"EDGELLM_HOME": str(tmp_path), "PYTHONPATH": str(Path(CHILD).parent)}
    with PseudoTerminal(["-c", code], environ=environ) as terminal:
        terminal.wait_for("Ctrl-D leaves")
        terminal.type("Q1\n")
        terminal.type("\x04")
        assert terminal.wait_for_end() == 0
    assert out.read_bytes() == b"Hello there\n"
