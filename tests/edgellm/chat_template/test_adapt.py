"""Roles that a template refuses (O05): adapted by the rules of docs/templates.md, or refused in the template's words."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import tiny_vocabulary
from hypothesis import given, settings
from hypothesis import strategies as st

from edgellm.chat_template import ChatTemplate, adapt
from edgellm.errors import TemplateError
from edgellm.tokenizer import Tokenizer

TOKENIZER = Tokenizer(tiny_vocabulary.make_spm(800))
# The same demands as Gemma 2's: no system role, user and assistant in turns.
STRICT = (
    "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate') }}{% endif %}"
    "<start_of_turn>{{ m.role }}\n{{ m.content | trim }}<end_of_turn>\n{% endfor %}"
)
PLAIN = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
SYSTEM_FOLDED = "the system message was put before the first words of the user"
MERGED = "neighbouring messages of one role were merged"
USER_FIRST = "an empty message of the user was put before the assistant's first"


def talk(*turns: str) -> list[dict[str, Any]]:
    names = {"s": "system", "u": "user", "a": "assistant", "d": "developer"}
    return [{"role": names[turn[0]], "content": turn[2:]} for turn in turns]


def written(*turns: str) -> str:
    names = {"u": "user", "a": "assistant"}
    return "".join(f"<start_of_turn>{names[turn[0]]}\n{turn[2:]}<end_of_turn>\n" for turn in turns)


CASES: list[tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]] = [
    (("u:Hi",), ("u:Hi",), ()),
    (("s:Be brief.", "u:Hi"), ("u:Be brief.\n\nHi",), (SYSTEM_FOLDED,)),
    (("s:Be brief.",), ("u:Be brief.",), (SYSTEM_FOLDED,)),
    (("s:A", "s:B", "u:Hi"), ("u:A\n\nB\n\nHi",), (SYSTEM_FOLDED,)),
    (("s:A", "a:Yes?", "u:Hi"), ("u:A", "a:Yes?", "u:Hi"), (SYSTEM_FOLDED,)),
    (("u:Hi", "u:there"), ("u:Hi\n\nthere",), (MERGED,)),
    (("u:Hi", "a:Yes", "a:?"), ("u:Hi", "a:Yes\n\n?"), (MERGED,)),
    (("a:Hello", "u:Hi"), ("u:", "a:Hello", "u:Hi"), (USER_FIRST,)),
    (("s:A", "u:Hi", "u:there", "a:x"), ("u:A\n\nHi\n\nthere", "a:x"), (SYSTEM_FOLDED, MERGED)),
    (("s:A", "u:Hi", "s:B", "u:there"), ("u:A\n\nHi\n\nB\n\nthere",), (SYSTEM_FOLDED, MERGED)),
    (("d:A", "u:Hi"), ("u:A\n\nHi",), ("the role developer became system", SYSTEM_FOLDED)),
]


@pytest.mark.parametrize(("given", "expected", "done"), CASES)
def test_a_refused_conversation_is_changed_by_rule(
    given: tuple[str, ...], expected: tuple[str, ...], done: tuple[str, ...]
) -> None:
    prompt = ChatTemplate(STRICT, TOKENIZER).prompt(talk(*given))
    assert (prompt.text, prompt.adaptations) == (written(*expected), done)
    assert prompt.token_ids == TOKENIZER.encode(prompt.text, special=True)


@pytest.mark.parametrize(("given", "expected", "done"), CASES)
def test_what_a_template_accepts_is_not_changed(
    given: tuple[str, ...], expected: tuple[str, ...], done: tuple[str, ...]
) -> None:
    prompt = ChatTemplate(PLAIN, TOKENIZER).prompt(talk(*given))
    assert prompt.text == "".join(f"[{m['role']}]{m['content']}" for m in talk(*given))
    assert prompt.adaptations == ()


def test_rules_can_be_left_out() -> None:
    with pytest.raises(TemplateError, match="refuses this conversation: System role not supported"):
        ChatTemplate(STRICT, TOKENIZER).prompt(talk("s:A", "u:Hi"), adapt=False)


def test_what_no_rule_helps_is_refused_in_the_templates_first_words() -> None:
    tool = {"role": "tool", "content": "21"}
    with pytest.raises(TemplateError) as caught:
        ChatTemplate(STRICT, TOKENIZER).prompt([*talk("s:A", "u:Hi", "a:?"), tool])
    assert str(caught.value) == "the model's chat template refuses this conversation: System role not supported"


def test_content_that_is_none_is_missing_and_then_empty() -> None:
    call = {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f", "arguments": {}}}]}
    source = "{% for m in messages %}{{ m.role + ':' + m.content }};{% endfor %}"
    prompt = ChatTemplate(source, TOKENIZER).prompt([*talk("u:Hi"), call])
    assert (prompt.text, prompt.adaptations) == ("user:Hi;assistant:;", ("missing content became an empty text",))
    assert ChatTemplate("{{ messages[1].content is defined }}", TOKENIZER).render([*talk("u:Hi"), call]) == "False"


def test_calls_and_results_of_tools_are_never_merged() -> None:
    call = {"role": "assistant", "content": "x", "tool_calls": []}
    messages = [*talk("a:Hi"), call, call]
    assert not any("merged" in words for _, done in adapt.attempts(messages) for words in done)


def test_a_limit_ends_the_attempts() -> None:
    source = "{% if messages[0].role == 'system' %}{{ raise_exception('no') }}{% endif %}{{ 'x' * 99999999 }}"
    with pytest.raises(TemplateError, match="refuses this conversation: no"):
        ChatTemplate(source, TOKENIZER).prompt(talk("s:A", "u:Hi"))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("suad"), st.sampled_from(["", "x", "y z"])), min_size=1, max_size=6))
def test_any_order_of_roles_is_rendered_with_every_word(turns: list[tuple[str, str]]) -> None:
    messages = talk(*(f"{role}:{text}" for role, text in turns))
    before = copy.deepcopy(messages)
    prompt = ChatTemplate(STRICT, TOKENIZER).prompt(messages)
    assert messages == before
    for text in ("x", "y z"):
        assert prompt.text.count(text) >= sum(word == text for _, word in turns)


def test_every_rule_is_documented() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "templates.md").read_text("utf-8")
    for words, _ in adapt.RULES:
        assert words in page
