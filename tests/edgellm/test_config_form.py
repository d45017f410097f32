"""What SamplingParams takes as the form of an answer."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from edgellm.config import SamplingParams
from edgellm.errors import OptionError


class Point(BaseModel):
    x: int


@pytest.mark.parametrize(
    "form",
    [
        {"json": True},
        {"schema": {}},
        {"schema": "{}"},
        {"schema": True},
        {"schema": False},  # refused where it is compiled: no answer satisfies it
        {"schema": Point},
        {"regex": "a"},
        {"grammar": 'root ::= "a"'},
        {"choices": ["a", "b"]},
        {"choices": (text for text in ("a", "b"))},
    ],
    ids=str,
)
def test_each_form(form: dict[str, Any]) -> None:
    params = SamplingParams(**form)
    assert params.is_structured
    assert isinstance(params.choices, tuple) and params.choices in ((), ("a", "b"))


def test_without_a_form() -> None:
    assert not SamplingParams().is_structured


@pytest.mark.parametrize(
    ("form", "says"),
    [
        ({"json": "yes"}, "json must be true or false, not 'yes'"),
        ({"json": {"type": "object"}}, "given as schema="),
        ({"schema": int}, "not the class int"),
        ({"schema": Point(x=1)}, "not Point"),
        ({"schema": 3}, "not int"),
        ({"regex": ""}, "regex must be a non-empty text"),
        ({"regex": b"a"}, "regex must be a non-empty text"),
        ({"grammar": 3}, "grammar must be a non-empty text"),
        ({"choices": []}, "choices is empty"),
        ({"choices": "yes"}, "list of texts"),
        ({"choices": 3}, "list of texts"),
        ({"choices": ["a", ""]}, "non-empty texts"),
        ({"choices": ["a", 3]}, "non-empty texts"),
        ({"json": True, "regex": "a"}, "regex cannot be combined with json"),
        ({"schema": False, "choices": ["a"]}, "choices cannot be combined with schema"),
        ({"schema": {}, "grammar": "a"}, "grammar cannot be combined with schema"),
    ],
    ids=str,
)
def test_what_is_no_form(form: dict[str, Any], says: str) -> None:
    with pytest.raises(OptionError) as caught:
        SamplingParams(**form)
    assert says in str(caught.value)
