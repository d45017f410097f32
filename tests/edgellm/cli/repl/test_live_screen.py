"""An answer on a capable terminal (O02 there): each line for good once, control characters never, figures while it comes."""

from __future__ import annotations

import io
import re

import pytest

from edgellm.cli.repl.answering import Progress
from edgellm.cli.repl.live_screen import LiveScreen, describe, make_console
from edgellm.cli.repl.screen import View

ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")


def say(pieces: list[str], *, markdown: bool = True, is_live: bool = True, height: int = 24) -> str:
    file = io.StringIO()
    console = make_console(file=file, force_terminal=True, width=40, height=height, color_system="standard")
    screen = LiveScreen(console, View(markdown=markdown), is_live=is_live)
    screen.start()
    for number, piece in enumerate(pieces, 1):
        screen.say(piece)
        screen._next_frame_s = 0.0  # draw every time, however fast this machine is
        screen.tick(lambda number=number: Progress(num_said=number, tokens_per_s=10.0 * number))  # type: ignore[misc]
    screen.finish()
    return file.getvalue()


def visible(output: str, height: int = 24) -> list[str]:
    """What a terminal of 40 columns shows in the end: the few sequences that rich uses, obeyed."""
    rows, row, column = [""], 0, 0
    for part in re.findall(r"\x1b\[[0-?]*[ -/]*[@-~]|\r|\n|[^\x1b\r\n]+", output):
        if part == "\n":
            row += 1
            rows += [""] * (row + 1 - len(rows))
        elif part == "\r":
            column = 0
        elif part.startswith("\x1b["):
            count = int(re.sub(r"\D", "", part) or 1)
            if part.endswith("A"):
                assert count <= row and row - count >= len(rows) - height, "it draws above the screen"
                row -= count
            elif part.endswith("K"):
                rows[row] = ""
        else:
            rows[row] = rows[row][:column].ljust(column) + part + rows[row][column + len(part) :]
            column += len(part)
            continue
        column = 0 if part == "\n" else column
    return [line.rstrip() for line in rows]


TEXT = "# Head\n\nSome **bold** words\n\n- one\n- two\n\n```python\nx = 1\n```\nlast line"
SHOWN = ["Head", "", "Some bold words", "", " • one", " • two", "", "x = 1", "", "last line"]


@pytest.mark.parametrize("size", [1, 5, 200])
def test_in_the_end_each_line_stands_there_once(size: int) -> None:
    pieces = [TEXT[i : i + size] for i in range(0, len(TEXT), size)]
    assert visible(say(pieces))[: len(SHOWN)] == SHOWN
    assert not any(visible(say(pieces))[len(SHOWN) :])
    assert visible(say(pieces, is_live=False))[: len(SHOWN)] == SHOWN


def test_a_block_taller_than_the_screen_is_whole_in_the_end() -> None:
    rows = [f"row {i}" for i in range(50)]
    output = say([row + "\n" for row in rows], height=10)
    assert [line for line in visible(output, 10) if line] == rows


def test_without_markdown_text_is_as_it_was_written() -> None:
    assert visible(say(["**a**\n", "| b |\n\n  c"], markdown=False))[:4] == ["**a**", "| b |", "", "  c"]


def test_control_characters_stay_out() -> None:
    for markdown in (True, False):
        output = say(["a\x1b]0;title\x07b ", "```\n\x1b[2J\x9b\n```"], markdown=markdown)
        assert "\x07" not in output and "\x9b" not in output and "\x1b]" not in output and "\x1b[2J" not in output
        assert "a\ufffd]0;title\ufffdb" in ESCAPES.sub("", output)


def test_thoughts_come_before_the_answer_and_in_other_letters() -> None:
    file = io.StringIO()
    console = make_console(file=file, force_terminal=True, width=40, height=24, color_system="standard")
    screen = LiveScreen(console, View(), is_live=False)
    screen.start()
    screen.think("hm\nwell")
    screen.say("Yes.")
    screen.finish()
    assert visible(file.getvalue())[:4] == ["hm", "well", "", "Yes."]
    assert "\x1b[2;3mhm" in file.getvalue()


@pytest.mark.parametrize(
    ("progress", "expected"),
    [
        (Progress(), ""),
        (Progress(0, 1000, 0, 0.1), ""),
        (Progress(0, 1000, 0, 1.0), "reading 1000 tokens: 0 %"),
        (Progress(500, 1000, 0, 4.0, 5.0), "reading 1000 tokens: 50 %, about 5 s left (Ctrl-C stops)"),
        (Progress(999, 1000, 0, 4.0, 0.01), "reading 1000 tokens: 99 %, about 1 s left (Ctrl-C stops)"),
        (Progress(1000, 1000, 1, 4.0), "1 so far (Ctrl-C stops)"),
        (Progress(1000, 1000, 21, 4.0, None, 40.2), "40 tokens/s, 21 so far (Ctrl-C stops)"),
    ],
)
def test_the_line_of_figures(progress: Progress, expected: str) -> None:
    assert describe(progress) == expected
