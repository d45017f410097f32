"""TextStream: half characters (case O01) and stop strings (case O02)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgellm.tokenizer import TextStream


def feed(pieces: Sequence[bytes], stop: Sequence[str] = ()) -> tuple[list[str], str, bool]:
    stream = TextStream(stop=stop)
    shown = [stream.push_bytes(piece) for piece in pieces]
    return shown, stream.finish(), stream.stopped


def test_half_characters_wait_for_their_rest() -> None:
    assert feed([b"\xf0\x9f", b"\x98\xb8", b"A"]) == (["", "\U0001f638", "A"], "", False)


def test_a_cut_character_becomes_one_replacement_at_the_end() -> None:
    assert feed([b"\xe6\xad"]) == ([""], "\ufffd", False)


@pytest.mark.parametrize(
    ("pieces", "shown"),
    [
        ([b"\xff", b"B"], ["\ufffd", "B"]),
        ([b"\xe6", b"A"], ["", "\ufffdA"]),  # no continuation came
        ([b"\xed\xa0", b"x"], ["\ufffd\ufffd", "x"]),  # the start of a surrogate can never become a character
        ([b"\xe0\x80"], ["\ufffd\ufffd"]),
        ([b"\xf5"], ["\ufffd"]),
    ],
)
def test_bytes_that_cannot_become_valid_are_not_held_back(pieces: list[bytes], shown: list[str]) -> None:
    assert feed(pieces)[:2] == (shown, "")


def test_a_stop_string_across_pieces_is_not_shown() -> None:
    shown, rest, stopped = feed([b"The", b" quick", b" br", b"own", b" fox", b" jumps"], ["own fox"])
    assert ("".join(shown) + rest, stopped) == ("The quick br", True)
    assert shown == ["The", " quick", " br", "", "", ""]


def test_a_beginning_of_a_stop_string_is_released_when_it_is_ordinary_text() -> None:
    assert feed([b"a", b"\n", b"b"], ["\n<|endoftext|>"]) == (["a", "", "\nb"], "", False)
    assert feed([b"a\n"], ["\n<|endoftext|>"]) == (["a"], "\n", False)


@pytest.mark.parametrize("stop", [["ab", "abc"], ["abc", "ab"]])
def test_the_earliest_of_overlapping_stop_strings_cuts(stop: list[str]) -> None:
    shown, rest, stopped = feed([b"x", b"a", b"b", b"c"], stop)
    assert ("".join(shown) + rest, stopped) == ("x", True)


def test_nothing_is_shown_after_a_stop() -> None:
    stream = TextStream(stop=["."])
    assert [stream.push_bytes(b"a.b"), stream.push_bytes(b"c"), stream.finish()] == ["a", "", ""]


def test_a_stop_string_may_end_in_the_last_half_character() -> None:
    assert feed([b"a\xe6"], ["\ufffd"]) == (["a"], "", True)


def test_push_takes_tokens() -> None:
    class Bytes:
        def token_bytes(self, token: int) -> bytes:
            return bytes((token,))

    stream = TextStream(Bytes())
    assert [stream.push(token) for token in "\u6b6a!".encode()] == ["", "", "\u6b6a", "!"]


@given(
    data=st.one_of(st.binary(max_size=40), st.text("ab\u6b6a", max_size=20).map(str.encode)),
    cuts=st.lists(st.integers(0, 40), max_size=8),
    stop=st.lists(st.text("ab\u6b6a\ufffd", min_size=1, max_size=4), max_size=3),
)
def test_how_text_is_cut_into_pieces_changes_nothing(data: bytes, cuts: list[int], stop: list[str]) -> None:
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    pieces = [data[a:b] for a, b in itertools.pairwise(edges)]
    shown, rest, stopped = feed(pieces, stop)
    text = data.decode("utf-8", "replace")
    ends = [(at + len(s), at) for s in stop if (at := text.find(s)) >= 0]
    assert "".join(shown) + rest == (text[: min(ends)[1]] if ends else text)
    assert stopped == bool(ends)
