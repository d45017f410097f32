"""Runs of blanks and digits, however the text is cut into tokens."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from edgellm.structured.runs import Run


def test_blanks_count_everywhere_and_digits_outside_strings() -> None:
    assert Run().after(b'{"a":  \n')[:2] == (3, 0)
    assert Run().after(b'{"a": "  ')[:2] == (2, 0)
    assert Run().after(b'{"a": 123')[:2] == (0, 3)
    assert Run().after(b'{"a": "123')[:2] == (0, 0)
    assert Run().after(rb'"\"123') == Run(0, 0, True, False)
    assert Run().after(rb'"\\"123') == Run(0, 3, False, False)


@given(st.text('"\\ 1a\n', max_size=12), st.integers(0, 12))
def test_how_the_text_is_cut_changes_nothing(text: str, at: int) -> None:
    assert Run().after(text[:at].encode()).after(text[at:].encode()) == Run().after(text.encode())
