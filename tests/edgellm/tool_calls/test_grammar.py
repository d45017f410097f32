"""The grammar of calls, through the real parser: what a family writes is allowed, what a schema forbids is not."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper

from edgellm.errors import OptionError
from edgellm.tool_calls.families import FAMILIES, get_family
from edgellm.tool_calls.grammar import make_grammar
from edgellm.tool_calls.request import check_request

CONTROLS = ["<|python_tag|>", "[TOOL_CALLS]", "[ARGS]", "<|tool_call|>", "<|START_ACTION|>", "<|END_ACTION|>"]
FIRST_BYTE = 1 + len(CONTROLS)


class Bytes:
    """One token a byte, and the control tokens before them."""

    eos_token_id = 0
    bos_token_id = None
    special_token_ids = tuple(range(FIRST_BYTE))

    def __init__(self) -> None:
        self.tokens = [b"\xff<eos>", *(b"\xff" + text.encode() for text in CONTROLS), *(bytes([i]) for i in range(256))]

    def __call__(self, text: str) -> list[int]:
        return [FIRST_BYTE + byte for byte in text.encode()]


TOKENIZER = LLTokenizer(TokenizerWrapper(Bytes()))


def tokenize(text: str, controls: Mapping[str, int]) -> list[int]:
    ids: list[int] = []
    while text:
        found = next((c for c in controls if text.startswith(c)), None)
        ids += [controls[found]] if found else [FIRST_BYTE + byte for byte in text[0].encode()]
        text = text[len(found or text[0]) :]
    return ids


def fits(grammar: str, text: str, controls: Mapping[str, int]) -> str:
    """-> "whole", "beginning" or "no"."""
    matcher = LLMatcher(TOKENIZER, LLMatcher.grammar_from_lark(grammar))
    assert not matcher.is_error(), matcher.get_error()
    ids = tokenize(text, controls)
    if matcher.try_consume_tokens(ids) < len(ids):
        return "no"
    return "whole" if matcher.is_accepting() else "beginning"


def controls_of(family: str, has_controls: bool) -> dict[str, int]:
    known = get_family(family).controls if has_controls else ()
    return {text: 1 + CONTROLS.index(text) for text in known if text in CONTROLS}


CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
COUNT = {
    "type": "object",
    "properties": {"n": {"$ref": "#/$defs/n"}},
    "required": ["n"],
    "$defs": {"n": {"type": "integer"}},
}


def tools(**strict: bool) -> list[Any]:
    return [
        {"type": "function", "function": {"name": "get_weather", "parameters": CITY, **strict}},
        {"type": "function", "function": {"name": "count", "parameters": COUNT, **strict}},
    ]


def write(family: str, *calls: tuple[str, Any]) -> str:
    form = get_family(family)
    texts = [
        before + json.dumps(arguments) + after for name, arguments in calls for before, after in [form.around(name)]
    ]
    return form.head + form.join.join(texts) + form.tail


@pytest.mark.parametrize("has_controls", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
def test_required_calls(family: str, has_controls: bool) -> None:
    controls = controls_of(family, has_controls)
    form = get_family(family)
    grammar = make_grammar(form, check_request(tools(), "required"), form.max_calls, controls)
    assert grammar is not None

    def check(text: str) -> str:
        return fits(grammar, text, controls)

    paris, three = ("get_weather", {"city": "Paris"}), ("count", {"n": 3})
    assert check(write(family, paris)) == check(write(family, three)) == "whole"
    assert check(write(family, paris, three)) == ("whole" if form.max_calls > 1 else "no")
    assert check(write(family, ("count", {"n": "3"}))) == "no"
    assert check(write(family, ("get_weather", {}))) == "no"
    assert check(write(family, ("get_weather", {"city": "Paris", "x": 1}))) == "no"
    assert check(write(family, ("other", {}))) == "no"
    assert check("Hello") == "no" and check("") == "beginning"


@pytest.mark.parametrize("has_controls", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
def test_strict_calls_are_kept_in_form_and_text_is_free(family: str, has_controls: bool) -> None:
    controls = controls_of(family, has_controls)
    form = get_family(family)
    grammar = make_grammar(form, check_request(tools(strict=True)), form.max_calls, controls)
    assert grammar is not None

    def check(text: str) -> str:
        return fits(grammar, text, controls)

    assert check("Hello, <b> [x]\n{1}") == "whole"
    assert check(write(family, ("get_weather", {"city": "Paris"}))) == "whole"
    assert check(write(family, ("get_weather", {"town": "Paris"}))) == "no"
    assert check(write(family, ("other", {}))) == "no"
    if not form.starts:
        assert check("Let me see.\n" + write(family, ("count", {"n": 3}), ("count", {"n": 4}))) == "whole"
        assert check("Let me see.\n" + write(family, ("count", {"n": 3}), ("count", {"n": None}))) == "no"


def test_free_unless_asked_for() -> None:
    hermes = get_family("hermes")
    assert make_grammar(hermes, check_request(tools()), 16, {}) is None
    assert make_grammar(hermes, check_request(tools(strict=False)), 16, {}) is None
    loose = make_grammar(hermes, check_request(tools(strict=False), "required"), 16, {})
    assert loose is not None and fits(loose, write("hermes", ("count", {"n": "3"})), {}) == "whole"


def test_one_call_where_one_is_wanted() -> None:
    request = check_request(tools(), {"type": "function", "function": {"name": "count"}})
    grammar = make_grammar(get_family("hermes"), request, 1, {})
    assert grammar is not None
    assert fits(grammar, write("hermes", ("count", {"n": 3})), {}) == "whole"
    assert fits(grammar, write("hermes", ("count", {"n": 3})) + "\n", {}) == "no"
    assert fits(grammar, write("hermes", ("get_weather", {"city": "x"})), {}) == "no"


def test_a_bad_schema_names_its_tool() -> None:
    endless = {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}
    request = check_request([{"type": "function", "function": {"name": "f", "parameters": endless}}], "required")
    with pytest.raises(OptionError, match="parameters of tool f: schema has no end"):
        make_grammar(get_family("hermes"), request, 1, {})
