"""Content, reasoning and calls come apart the same however the answer was cut, and nothing is lost."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgellm.tool_calls.calls import Calls, Delta, make_call_id
from edgellm.tool_calls.families import FAMILIES
from edgellm.tool_calls.reasoning import KNOWN, ReasoningMarks
from edgellm.tool_calls.splitter import Splitter

THINK = KNOWN[0]


@dataclass
class Parts:
    """What deltas add up to. calls: index -> [id, name, arguments]."""

    content: str = ""
    reasoning: str = ""
    calls: dict[int, list[str]] = field(default_factory=dict)

    def add(self, delta: Delta) -> None:
        assert bool(delta.content) + bool(delta.reasoning) + bool(delta.tool_calls) == 1
        self.content += delta.content
        self.reasoning += delta.reasoning
        for call in delta.tool_calls:
            if call.index not in self.calls:
                assert call.id and call.name and not call.arguments
                self.calls[call.index] = [call.id, call.name, ""]
            else:
                assert call.id is None and call.name is None and call.arguments
                self.calls[call.index][2] += call.arguments


def split(
    pieces: list[str], family: str | None, marks: ReasoningMarks | None = None, is_opened: bool = False
) -> tuple[Parts, list[tuple[str, str, str]]]:
    calls = Calls({"f": {}, "get_weather": {}}, "call_{}".format)
    splitter = Splitter(marks, is_opened, FAMILIES[family] if family else None, calls)
    parts = Parts()
    for piece in pieces:
        for delta in splitter.push(piece):
            parts.add(delta)
    for delta in splitter.finish():
        parts.add(delta)
    assert (splitter.content, splitter.reasoning) == (parts.content, parts.reasoning)
    finished = [(call.id, call.name, call.arguments) for call in calls.finished]
    announced = [tuple(call) for call in parts.calls.values()]
    assert all(call in announced for call in finished)
    return parts, finished


def cut(text: str, sizes: list[int]) -> list[str]:
    pieces = []
    for size in sizes:
        pieces.append(text[:size])
        text = text[size:]
    return [*pieces, text]


FRAGMENTS = st.lists(
    st.sampled_from(
        (
            *("<think>", "</think>", "[THINK]", "[/THINK]", "<tool_call>", "</tool_call>", "[TOOL_CALLS]", "[ARGS]"),
            *('{"name": "f", "arguments": {"a": "b"}}', '{"name": "get_weather", "parameters": {}}', "<|python_tag|>"),
            *('{"name": "f", "arguments": {"a"', "[", "]", "{", "}", ", ", "f", "\n", " ", "Hi", "<", "<tool", "[TOOL"),
            *('{"name": "g", "arguments": {}}', '"', "é", '{"arguments": {"x": [1, {}]}, "name": "f"}', ":", "```"),
            *(
                "<|START_ACTION|>",
                "```json\n",
                "<function=f>",
                "<parameter=a>",
                "</parameter>",
                "</function>",
                "```tool_code\n",
            ),
            *(
                "<arg_key>a</arg_key><arg_value>",
                "</arg_value>",
                "<|tool_call_start|>",
                "[f(a=1)]",
                "<|tool_call_end|>",
            ),
            *("<|tool_call>call:f{", '<|"|>', "<tool_call|>", "a:1", "f(a=1)"),
        )
    ),
    max_size=14,
).map("".join)


@given(
    FRAGMENTS,
    st.lists(st.integers(0, 6), max_size=60),
    st.sampled_from([None, *FAMILIES]),
    st.sampled_from([None, *KNOWN[:2]]),
    st.booleans(),
)
def test_pieces_change_nothing(
    text: str, sizes: list[int], family: str | None, marks: ReasoningMarks | None, is_opened: bool
) -> None:
    is_opened = is_opened and marks is not None
    whole = split([text], family, marks, is_opened)
    assert split(cut(text, sizes), family, marks, is_opened) == whole
    assert split(list(text), family, marks, is_opened) == whole


@given(FRAGMENTS, st.sampled_from([None, *FAMILIES]))
def test_without_calls_and_reasoning_the_text_is_untouched(text: str, family: str | None) -> None:
    parts, finished = split([text], family)
    if not finished:
        assert parts.content == text


@given(st.text(max_size=40), st.text(max_size=40))
def test_reasoning_and_content_are_all_there_is(thought: str, answer: str) -> None:
    parts, _ = split([f"<think>{thought}</think>{answer}"], None, THINK)
    if THINK.close not in thought:
        assert (parts.reasoning, parts.content) == (thought.strip(), answer.lstrip())


@pytest.mark.parametrize(
    ("text", "is_opened", "reasoning", "content"),
    [
        ("<think>\nhm\n\nwell\n</think>\n\nYes. ", False, "hm\n\nwell", "Yes. "),
        ("\n <think>hm</think>Yes", False, "hm", "Yes"),
        ("<think>\n\n</think>\n\nYes", False, "", "Yes"),
        ("hm</think>\nYes", True, "hm", "Yes"),
        ("<think>hm</think>Yes", True, "hm", "Yes"),
        ("<think>hm, cut of", False, "hm, cut of", ""),
        ("hm </thin", True, "hm </thin", ""),
        ("It is <think>hm</think>.", False, "", "It is <think>hm</think>."),
        (" </think> <thi", False, "", " </think> <thi"),
        ("<think>a</think>b<think>c</think>", False, "a", "b<think>c</think>"),
        ("", True, "", ""),
        ("  \n", False, "", "  \n"),
    ],
)
def test_reasoning_stands_at_the_beginning(text: str, is_opened: bool, reasoning: str, content: str) -> None:
    for pieces in ([text], list(text)):
        parts, _ = split(pieces, None, THINK, is_opened)
        assert (parts.reasoning, parts.content) == (reasoning, content)


def test_reasoning_in_a_channel() -> None:
    parts, _ = split(list("<|channel>thought\nhm\n<channel|>Yes"), None, KNOWN[-1])
    assert (parts.reasoning, parts.content) == ("hm", "Yes")


def test_calls_after_reasoning() -> None:
    text = '<think>\nhm {"name": "f"}\n</think>\n\n{"name": "f", "parameters": {"a": 1}}'
    parts, finished = split(list(text), "llama3", THINK)
    assert (parts.reasoning, parts.content) == ('hm {"name": "f"}', "")
    assert finished == [("call_0", "f", '{"a": 1}')]


def test_text_comes_as_soon_as_it_is_certain() -> None:
    splitter = Splitter(THINK, False, FAMILIES["hermes"], Calls({"f": {}}, str))
    shown: list[dict[str, Any]] = []
    for piece in ("<th", "ink>so", " it", " is</", "think>\n\nWell", ", <tool", "s>!"):
        shown += [delta.as_dict() for delta in splitter.push(piece)]
    assert shown == [
        {"reasoning_content": "so"},
        {"reasoning_content": " it"},
        {"reasoning_content": " is"},
        {"content": "Well"},
        {"content": ","},
        {"content": " <tools>!"},
    ]


def test_a_call_is_announced_while_it_is_written() -> None:
    calls = Calls({"f": {}}, "id{}".format)
    splitter = Splitter(None, False, FAMILIES["hermes"], calls)
    shown: list[dict[str, Any]] = []
    for piece in ('<tool_call>\n{"name": "f", "argum', 'ents": {"te', 'xt": "lo', 'ng"}', "}\n</tool_call>"):
        shown += [delta.as_dict() for delta in splitter.push(piece)]
    assert [delta["tool_calls"][0]["function"].get("arguments") for delta in shown[:1]] == [""]
    first = {"index": 0, "id": "id0", "type": "function", "function": {"name": "f", "arguments": ""}}
    assert shown[0]["tool_calls"][0] == first
    assert "".join(c["function"]["arguments"] for d in shown for c in d["tool_calls"]) == '{"text": "long"}'
    assert len(shown) == 3 and [call.as_dict() for call in calls.finished] == [
        {"id": "id0", "type": "function", "function": {"name": "f", "arguments": '{"text": "long"}'}}
    ]


def test_a_call_that_breaks_off_is_text_and_its_index_is_used_up() -> None:
    text = '<tool_call>{"name": "f", "arguments": {"a": x}}</tool_call><tool_call>{"name": "f", "arguments": {}}</tool_call>'
    parts, finished = split(list(text), "hermes")
    assert parts.content == '<tool_call>{"name": "f", "arguments": {"a": x}}</tool_call>'
    assert parts.calls[0] == ["call_0", "f", '{"a": '] and finished == [("call_1", "f", "{}")]


def test_long_text_is_not_slow() -> None:
    text = '<tool_call>{"name": "f", "arguments": {"a": "' + "word " * 40_000
    parts, finished = split(cut(text, [5] * 40_000), "hermes")
    assert parts.content == text.rstrip() + " " and not finished


def test_ids_differ_by_prompt_and_index_and_repeat_with_them() -> None:
    ids = [make_call_id(prompt, index, "") for prompt in ([1, 2], [1, 3], [12]) for index in range(3)]
    assert len(set(ids)) == 9 and all(len(i) == 9 and i.isalnum() for i in ids)
    assert make_call_id([1, 2], 0, "call_") == "call_" + ids[0]
