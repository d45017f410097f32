"""Regular expressions, choices and grammars in Lark's notation: what they accept, and what is refused in one line."""

from __future__ import annotations

import time

import pytest
from byte_constraints import accepts, answer, make
from hypothesis import given, settings
from hypothesis import strategies as st

from edgellm.errors import EdgeLLMError, OptionError, UnsupportedError


def test_a_regular_expression_matches_the_whole_answer() -> None:
    assert accepts("2024-05-01", regex=r"\d{4}-\d\d-\d\d") and accepts("ab\n", regex="(?s)a.*")
    for text in ("x2024-05-01", "2024-05-0", "2024-05-011"):
        assert not accepts(text, regex=r"\d{4}-\d\d-\d\d")


@settings(max_examples=20, deadline=None)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6), min_size=1, max_size=5))
def test_choices_are_taken_letter_by_letter(choices: list[str]) -> None:
    for text in choices:
        assert accepts(text, choices=choices)
    for text in (choices[0] + "x", choices[0][:-1]):
        assert accepts(text, choices=choices) == (text in choices)


def test_a_choice_may_begin_another() -> None:
    for text in ("yes", "yes, of course", "no"):
        assert accepts(text, choices=("yes", "yes, of course", "no"))
    assert not accepts("yes,", choices=("yes", "yes, of course", "no"))


def test_many_choices() -> None:
    choices = tuple(f"choice number {i}" for i in range(5000))
    text, has_ended = answer(make(choices=choices), lambda piece: float(len(piece)))
    assert has_ended and text in choices


def test_lark_with_terminals_rules_and_json_inside() -> None:
    grammar = 'start: "call " NAME "(" args? ")"\nargs: %json {"type": "array", "maxItems": 2}\nNAME: /[a-z]+/'
    assert accepts("call f([1, 2])", grammar=grammar) and accepts("call g()", grammar=grammar)
    assert not accepts("call f([1,2,3])", grammar=grammar) and not accepts("call F()", grammar=grammar)


REFUSED = {
    "look-ahead": ({"regex": "(?=a)b"}, UnsupportedError, "look-around"),
    "back-reference": ({"regex": r"(a)\1"}, UnsupportedError, "backreferences"),
    "word boundary": ({"regex": r"\ba"}, UnsupportedError, "lookarounds"),
    "open group": ({"regex": "(a"}, OptionError, "unclosed group"),
    "deep regex": ({"regex": "(" * 5000 + "a" + ")" * 5000}, OptionError, "5000 brackets deep"),
    "long regex": ({"regex": "a" * 300_000}, OptionError, "300000 characters"),
    "half a character": ({"regex": "\ud800"}, OptionError, "valid text"),
    "no text": ({"regex": r"[^\s\S]"}, OptionError, "impossible"),
    "no beginning": ({"grammar": 'a: "b"'}, OptionError, "`start: ...`"),
    "no rule": ({"grammar": "start: nothing"}, OptionError, "nothing"),
    "deep grammar": ({"grammar": "start: " + "(" * 5000 + '"a"' + ")" * 5000}, OptionError, "5000 brackets deep"),
    "many rules": (
        {"grammar": "start: r0\n" + "".join(f"r{i}: r{i + 1}\n" for i in range(9000))},
        OptionError,
        "rules",
    ),
    "many terminals": (
        {"grammar": "start: R0\n" + "".join(f"R{i}: R{i + 1}\n" for i in range(9000))},
        OptionError,
        "rules",
    ),
    "half a choice": ({"choices": ("a", "\ud800")}, OptionError, "half a character"),
    "too many choices": ({"choices": tuple(map(str, range(10_001)))}, OptionError, "10001 texts"),
    "long choices": ({"choices": ("a" * 200_001,)}, OptionError, "200001 characters"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_is_refused(name: str) -> None:
    form, kind, says = REFUSED[name]
    start = time.perf_counter()
    with pytest.raises(EdgeLLMError) as caught:
        make(**form)
    assert time.perf_counter() - start < 10
    assert type(caught.value) is kind and says in str(caught.value) and "\n" not in str(caught.value)


def test_long_chains_of_rules_within_the_limit_compile() -> None:
    chain = "".join(f"r{i}: r{i + 1}\n" for i in range(1900))
    assert accepts("a", grammar=f'start: r0\n{chain}r1900: "a"')
    assert accepts("a", grammar=f'start: R0\n{chain.upper()}R1900: "a"')


@pytest.mark.parametrize("text", ["a" * 200_000, "\n" * 200_000, "start" + " " * 199_000, "start[\n]" * 25_000])
def test_a_long_text_without_a_rule_is_refused_at_once(text: str) -> None:
    """The patterns that look for rules once took a minute for these, and with them the whole process."""
    start = time.monotonic()
    with pytest.raises(OptionError, match="grammar"):
        make(grammar=text)
    assert time.monotonic() - start < 5


@pytest.mark.parametrize(
    "head", ["start:", "?start :", "start\n  :", "  start[max_tokens=9]:", "start [\n capture ] :"]
)
def test_the_beginning_may_be_written_in_many_ways(head: str) -> None:
    from edgellm.structured.grammar import _has_start

    assert _has_start(f'{head} "a"') and not _has_start(f're{head.strip()} "a"')
