"""Cutting special tokens out of a text."""

from __future__ import annotations

import time

import pytest

from edgellm.tokenizer.special import Splitter, repair

CONTROL = {"<a>": 1, "<ab>": 2, "<a>b": 3, "!": 4}
USER = {"\n": 10, "\n\n": 11, "<t>": 12}


def splitter(rstrip: frozenset[int] = frozenset()) -> Splitter:
    return Splitter(CONTROL, USER, frozenset(CONTROL.values()), rstrip)


@pytest.mark.parametrize(
    ("text", "special", "pieces"),
    [
        ("", True, []),
        ("x<ab>y", True, ["x", 2, "y"]),
        ("x<ab>y", False, ["x<ab>y"]),
        ("<a>b<a>", True, [3, 1]),  # the longest at a place
        ("<<a>", True, ["<", 1]),
        ("\n\n\n", False, [11, 10]),  # user-defined always
        ("<t>!", False, [12, "!"]),
        ("<t>!", True, [12, 4]),
        ("<a", True, ["<a"]),
    ],
)
def test_split(text: str, special: bool, pieces: list[str | int]) -> None:
    assert splitter().split(text, special) == pieces


def test_protected_places_keep_control_tokens_out_and_the_text_whole() -> None:
    assert splitter().split("x<a>y<a>z", True, protected=[1]) == ["x<a>y", 1, "z"]
    assert splitter().split("x<a>y", True, protected=[3]) == ["x<a>y"]
    assert splitter().split("<a>b", True, protected=[3]) == [1, "b"]  # the shorter one does not cover the place
    assert splitter().split("\n<a>", True, protected=[0]) == [10, 1]  # user-defined tokens are text


def test_some_tokens_swallow_the_space_after_them() -> None:
    assert splitter(frozenset({1})).split("<a> \n x<ab> y", True) == [1, "x", 2, " y"]


def test_time_is_linear_in_the_text_however_many_tokens() -> None:
    many = Splitter({f"<unused{i}>": i for i in range(6000)}, {}, frozenset())
    started = time.perf_counter()
    assert many.split("<unused1" * 20_000, True) == ["<unused1" * 20_000]
    assert many.split("<" * 200_000, True) == ["<" * 200_000]
    assert time.perf_counter() - started < 5


def test_repair() -> None:
    assert repair("\ud83d\ude38 \ud800 a") == "\U0001f638 \ufffd a"
    assert repair("na\u00efve") == "na\u00efve"
