"""What may follow, what must, and the way back. Case O23: white space never fills an answer."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest
from byte_constraints import VOCAB_SIZE, accepts, allowed, answer, make, tokenizer
from hypothesis import given, settings
from hypothesis import strategies as st

from edgellm.errors import OptionError
from edgellm.structured.runs import MAX_BLANKS, MAX_DIGITS

OBJECT = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
NESTED = {
    "type": "object",
    "properties": {"kind": {"enum": ["circle", "square"]}, "size": {"type": "integer"}, "tags": {"type": "array"}},
    "required": ["kind", "size"],
    "additionalProperties": False,
}


def prefers_blanks(piece: bytes) -> float:
    """A model that would rather write blanks than anything else, and ends what it can end where it may not."""
    return (
        9.0 + len(piece) if piece.strip(b" \n") == b"" and piece else {b'"': 5.0, b"}": 4.0, b"]": 3.0}.get(piece, 0.0)
    )


def prefers_digits(piece: bytes) -> float:
    return 9.0 if piece.isdigit() else {b".": 8.0, b'"': 5.0, b"}": 4.0, b"]": 3.0}.get(piece, 0.0)


@pytest.mark.parametrize(
    "form", [{"json": True}, {"schema": OBJECT}, {"schema": NESTED}, {"schema": {"type": "array"}}], ids=str
)
def test_o23_a_model_that_prefers_blanks_ends_with_valid_json(form: dict[str, Any]) -> None:
    text, has_ended = answer(make(**form), prefers_blanks)
    assert has_ended and len(text) < 400
    value = json.loads(text)
    assert "a" in value if form.get("schema") == OBJECT else True
    assert max(map(len, re.findall(r"\s+", text)), default=0) <= MAX_BLANKS + 1
    assert text == text.strip()
    outside = re.sub(r'"[^"]*"', '""', text)
    assert not re.search(r"\n\s*\n| {21}", outside)


def test_a_model_that_prefers_digits_ends_with_valid_json() -> None:
    text, has_ended = answer(
        make(schema={"type": "array", "items": {"type": "number"}, "minItems": 1, "maxItems": 1}), prefers_digits
    )
    assert has_ended and json.loads(text)
    assert max(map(len, re.findall(r"\d+", text))) <= MAX_DIGITS + 1


def test_a_time_has_an_end() -> None:
    text, has_ended = answer(
        make(schema={"type": "string", "format": "time"}), lambda p: 9.0 if p.isdigit() or p == b"." else 0.0
    )
    assert has_ended and len(text) < 100 and json.loads(text)


def test_what_a_schema_wants_is_never_forbidden() -> None:
    value = " " * 200
    assert accepts(json.dumps(value), schema={"const": value})
    assert answer(make(schema={"const": value}), lambda piece: -float(len(piece)))[1]


def test_o23_nothing_but_the_end_may_follow_the_value() -> None:
    constraint = make(schema={"type": "array", "maxItems": 0})
    for piece in "[]":
        assert not constraint.is_complete
        constraint.accept(tokenizer().encode(piece)[0])
    assert constraint.is_complete and constraint.forced() == []
    assert allowed(constraint) == set(tokenizer().eog_ids)


def test_a_text_may_end_or_go_on() -> None:
    constraint = make(regex="ab*")
    (a,), (b,) = tokenizer().encode("a"), tokenizer().encode("b")
    assert not tokenizer().eog_ids & allowed(constraint)
    constraint.accept(a)
    assert tokenizer().eog_ids | {b} <= allowed(constraint) and not constraint.is_complete
    constraint.accept(min(tokenizer().eog_ids))
    assert constraint.forced() == []


def test_forced_tokens_are_the_usual_ones_and_stop_where_a_choice_begins() -> None:
    constraint = make(regex=r'\{"kind": "(circle|square)"\}')
    forced = constraint.forced()
    assert b"".join(map(tokenizer().token_bytes, forced)) == b'{"kind": "'
    assert forced == tokenizer().encode('{"kind": "')
    for token_id in forced:
        assert token_id in allowed(constraint)
        constraint.accept(token_id)
    assert constraint.forced() == [] and len(allowed(constraint)) > 1
    (c,) = tokenizer().encode("c")
    constraint.accept(c)
    rest = b"".join(map(tokenizer().token_bytes, constraint.forced()))
    assert b"circle".startswith(b"c" + rest[:5]) and b'ircle"}'.startswith(rest)


@settings(max_examples=30, deadline=None)
@given(st.randoms(use_true_random=False), st.sampled_from(["schema", "json", "regex", "grammar", "choices"]))
def test_any_way_back_leads_to_the_same_masks(rng: Any, kind: str) -> None:
    form = {
        "schema": NESTED,
        "json": True,
        "regex": "(ab|a)*c",
        "grammar": 'root ::= "(" root? ")" | "the"',
        "choices": ("the", "then", "other"),
    }[kind]
    constraint = make(**{kind: form})
    masks, ids = [allowed(constraint)], []
    for _ in range(25):
        if ids and rng.random() < 0.4:
            count = rng.randint(1, len(ids))
            constraint.take_back(count)
            del ids[-count:], masks[-count:]
            assert allowed(constraint) == masks[-1]
        elif not (ids and ids[-1] in tokenizer().eog_ids):
            ids.append(rng.choice(sorted(masks[-1])))
            constraint.accept(ids[-1])
            masks.append(masks[-1] if ids[-1] in tokenizer().eog_ids else allowed(constraint))
    fresh = make(**{kind: form})
    for token_id in ids:
        fresh.accept(token_id)
    assert fresh.is_complete == constraint.is_complete and fresh.forced() == constraint.forced()


def test_control_and_unused_tokens_are_never_text() -> None:
    known = tokenizer()
    empty = {i for i in range(VOCAB_SIZE) if not known.token_bytes(i)}
    assert len(empty) > 3 and not empty & allowed(make(regex=r"(.|\n)+"))
    spelled = make(choices=("<|im_end|>",))
    assert not empty & allowed(spelled)
    assert accepts("<|im_end|>", choices=("<|im_end|>",))


def test_more_logits_than_tokens_and_fewer() -> None:
    constraint = make(choices=("the",))
    assert allowed(constraint, VOCAB_SIZE + 77) == allowed(constraint)
    fewer = np.zeros(VOCAB_SIZE - 5, np.float32)
    constraint.mask(fewer)
    assert set(np.flatnonzero(fewer == 0).tolist()) == {i for i in allowed(constraint) if i < VOCAB_SIZE - 5}


def test_a_token_that_cannot_follow_is_an_error_and_not_a_silent_change() -> None:
    constraint = make(choices=("the",))
    (x,) = tokenizer().encode("x")
    with pytest.raises(OptionError, match="choices"):
        constraint.accept(x)


@pytest.mark.parametrize(
    "form", [{"regex": r"[^\s\S]"}, {"grammar": "start: start"}, {"grammar": 'start: "a" start'}], ids=str
)
def test_an_impossible_form_is_an_error_and_not_an_endless_loop(form: dict[str, Any]) -> None:
    with pytest.raises(OptionError) as caught:
        answer(make(**form), lambda piece: float(len(piece)))
    assert "\n" not in str(caught.value)
