"""The waiting reader reads JSON as json.loads does, whatever the pieces, and refuses everything else."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgellm.tool_calls.reader import MAX_DEPTH, MalformedError, Reader

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def read(text: str, sizes: list[int]) -> tuple[str, str]:
    """-> what was written of the first JSON value of a text, and the text that follows it."""
    pieces: list[str] = []
    reader = Reader()
    steps = reader.read_value(pieces.append)
    done = False
    for size in (*sizes, len(text)):
        reader.text, text = reader.text + text[:size], text[size:]
        reader.is_ended = not text
        if not done:
            try:
                next(steps)
            except StopIteration:
                done = True
    assert done
    return "".join(pieces), reader.text[reader.at :]


@given(VALUES, st.lists(st.integers(1, 9), max_size=40), st.sampled_from([None, 1]), st.booleans())
def test_json_is_read_as_it_is_written(value: Any, sizes: list[int], indent: int | None, is_ascii: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=is_ascii)
    assert read(text + "]", sizes) == (text, "]")


@pytest.mark.parametrize(
    "text",
    (
        *(
            "",
            "tru",
            "True",
            "None",
            "NaN",
            "Infinity",
            "01",
            "1.",
            "-",
            "+1",
            ".5",
            "1e",
            "'a'",
            '"a',
            '"\\x"',
            '"\\u12g4"',
        ),
        *("[1,]", "[1 2]", "[", '{"a"}', '{"a":}', "{a: 1}", '{"a": 1,}', "{'a': 1}", '{"a": 1', "{1: 2}", "[,]"),
    ),
)
def test_what_is_no_json_is_refused(text: str) -> None:
    for sizes in ([], [1] * len(text)):
        with pytest.raises(MalformedError):
            read(text, sizes)


def test_depth_has_a_limit() -> None:
    assert read("[" * MAX_DEPTH + "]" * MAX_DEPTH, [])[1] == ""
    with pytest.raises(MalformedError):
        read("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1), [])
    with pytest.raises(MalformedError):
        read("[" * 100_000, [])


def test_line_ends_in_strings_are_mended() -> None:
    written, _ = read('{"code": "a\n\tb\x01"}', [3, 5])
    assert written == '{"code": "a\\n\\tb\\u0001"}'
    assert json.loads(written) == {"code": "a\n\tb\x01"}
