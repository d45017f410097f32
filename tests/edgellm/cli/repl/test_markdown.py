"""Markdown on a screen: nothing of the text is lost, nothing steers the terminal."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from edgellm.cli.repl.live_screen import make_console
from edgellm.cli.repl.markdown import ChatMarkdown, CodePainter, Drawn, draw


def console(width: int = 60, *, colours: bool = False) -> Console:
    system = "standard" if colours else None
    return make_console(width=width, file=io.StringIO(), force_terminal=colours, color_system=system, no_color=False)


def shown(text: str, width: int = 60) -> str:
    screen = console(width)
    screen.print(Drawn(draw(screen, ChatMarkdown(text))), end="")
    assert isinstance(screen.file, io.StringIO)
    return screen.file.getvalue()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("one\ntwo", "one\ntwo\n"),
        ("a <b>c</b> <div>d</div>", "a <b>c</b> <div>d</div>\n"),
        ("<div>\nx\n</div>", "<div>\nx\n</div>\n"),
        ("[1]: http://a.b", "[1]: http://a.b\n"),
        (r"\(x^2\) and \[y\]", "\\(x^2\\) and \\[y\\]\n"),
        ("[name](http://a.b)", "name (http://a.b)\n"),
        ("**b** *i* `c` ~~s~~", "b i c s\n"),
        ("7. seven", " 7 seven\n"),
        ("# Title", "Title\n"),
        ("> so", "▌ so\n"),
    ],
)
def test_what_is_written_is_shown(text: str, expected: str) -> None:
    assert shown(text) == expected


def test_an_image_keeps_its_words_and_address() -> None:
    assert "words" in shown("![words](http://a.b/c.png)") and "http://a.b/c.png" in shown("![words](http://a.b/c.png)")


def test_a_wide_cell_is_folded_not_cut() -> None:
    word = "x" * 150
    text = shown(f"| a | b |\n|---|---|\n| {word} | 2 |", 40)
    assert text.count("x") == 150 and "…" not in text and max(map(len, text.splitlines())) <= 40


def test_more_columns_than_fit_become_rows_of_text() -> None:
    head = " | ".join(f"c{i}" for i in range(30))
    text = shown(f"| {head} |\n|{'---|' * 30}\n| {head} |", 40)
    assert all(text.count(f"c{i}") >= 2 for i in range(30)) and "…" not in text


def test_a_link_cannot_hide_its_address_in_an_escape_sequence() -> None:
    screen = console(colours=True)
    screen.print(Drawn(draw(screen, ChatMarkdown("[safe](http://evil.example)"))), end="")
    assert isinstance(screen.file, io.StringIO)
    assert "\x1b]8" not in screen.file.getvalue() and "http://evil.example" in screen.file.getvalue()


def test_code_has_colours_that_know_what_stands_above() -> None:
    painter = CodePainter("python")
    first, inside, last = (painter.paint(line) for line in ('x = """', "def", '"""'))
    assert [line.plain for line in (first, inside, last)] == ['x = """', "def", '"""']
    alone = CodePainter("python").paint("def")
    assert inside.spans != alone.spans  # inside a string it is no keyword


@pytest.mark.parametrize("language", ["", "no-such-language", "text"])
def test_unknown_code_is_shown_as_it_is(language: str) -> None:
    painter = CodePainter(language)
    assert [painter.paint(line).plain for line in ("a\tb"[:1], "", "c" * 1000)] == ["a", "", "c" * 1000]
