"""What reaches a screen: sizes, colours, nothing that steers it."""

from __future__ import annotations

import io

import pytest

from edgellm.cli import terminal


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (98_362_432, "98 MB"),
        (999_600_000, "1.0 GB"),
        (9_949_000_000, "9.9 GB"),
        (123_000_000_000, "123 GB"),
        (5_000_000_000_000, "5000 GB"),
    ],
)
def test_bytes_for_people(count: int, shown: str) -> None:
    assert terminal.human_bytes(count) == shown


@pytest.mark.parametrize(("count", "shown"), [(7, "7"), (134_515_008, "135 million"), (1_235_814_432, "1.24 billion")])
def test_counts_for_people(count: int, shown: str) -> None:
    assert terminal.human_count(count) == shown


def test_control_characters_do_not_reach_a_terminal() -> None:
    assert terminal.printable("a\x1b[31m\x9b\x07\tb\nü🙂") == "a\ufffd[31m\ufffd\ufffd\tb\nü🙂"


@pytest.mark.parametrize(
    ("is_tty", "no_color", "term", "expected"),
    [(True, "", "xterm", True), (True, "1", "xterm", False), (True, "", "dumb", False), (False, "", "xterm", False)],
)
def test_colours_only_where_wanted(
    is_tty: bool, no_color: str, term: str, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: is_tty)
    monkeypatch.setenv("NO_COLOR", no_color)
    monkeypatch.setenv("TERM", term)
    assert terminal.wants_colour(stream) is expected
    assert (terminal.dim("x", stream) == "x") is not expected
