"""Runs of blanks and digits, however the text is cut into tokens."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from edgellm.structured.runs import BLANKS, DIGITS, MAX_BLANKS, MAX_DIGITS, MAX_DIGITS_IN_STRING, Run


def test_blanks_and_digits_count_everywhere() -> None:
    assert Run().after(b'{"a":  \n') == Run(blanks=3)
    assert Run().after(b'{"a": "  ') == Run(blanks=2, is_in_string=True)
    assert Run().after(b'{"a": 123') == Run(digits=3)
    assert Run().after(b'{"a": "123') == Run(digits=3, is_in_string=True)
    assert Run().after(rb'"\"123') == Run(digits=3, is_in_string=True)
    assert Run().after(rb'"\\"123') == Run(digits=3)


def test_a_run_is_too_long_from_its_limit_on() -> None:
    for before, letters, limit in (
        (b"", BLANKS, MAX_BLANKS),
        (b'"', BLANKS, MAX_BLANKS),
        (b"", DIGITS, MAX_DIGITS),
        (b'"', DIGITS, MAX_DIGITS_IN_STRING),
    ):
        run = Run().after(before + letters[:1] * (limit - 1))
        assert run.too_long == b"" and run.after(letters[-1:]).too_long == letters
        assert run.after(letters[-1:] + b"x").too_long == b""


@given(st.text('"\\ 1a\n', max_size=12), st.integers(0, 12))
def test_how_the_text_is_cut_changes_nothing(text: str, at: int) -> None:
    assert Run().after(text[:at].encode()).after(text[at:].encode()) == Run().after(text.encode())
