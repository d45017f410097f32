"""Chats end to end on scripted answers: content, reasoning and calls apart, forms kept, the round trip. Case O04."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from scripted_chat import CHATML, make_chat_llm, say

from edgellm.errors import OptionError, UnsupportedError
from edgellm.tool_calls import Delta

USER = [{"role": "user", "content": "What is the weather in Paris?"}]
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 8}, "unit": {"enum": ["C", "F"]}},
    "required": ["city", "unit"],
    "additionalProperties": False,
}
TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "description": "Now.", "parameters": SCHEMA}},
    {"type": "function", "function": {"name": "roll", "parameters": {"type": "object", "additionalProperties": False}}},
]
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris", "unit": "C"}}\n</tool_call>'
KNOWS = (
    "{% if tools %}<|im_start|>system\n{{ tools | tojson }}<tool_call></tool_call><|im_end|>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{% for c in m.tool_calls %}"
    '<tool_call>\n{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments }}}\n</tool_call>'
    "{% endfor %}<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
)
MISTRAL = (
    "{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}[INST]{{ m.content }}[/INST]{% endfor %}"
    "{# [TOOL_CALLS] [ARGS] [THINK] [/THINK] #}"
)
MARKS = ["[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "[THINK]", "[/THINK]"]
THINKS = CHATML.replace("assistant\n{%", "assistant\n<think>\n{%")


def add_up(deltas: list[Delta]) -> tuple[str, str, str]:
    arguments = "".join(call.arguments for delta in deltas for call in delta.tool_calls)
    return "".join(d.content for d in deltas), "".join(d.reasoning for d in deltas), arguments


@pytest.mark.parametrize("source", [CHATML, KNOWS])
def test_content_reasoning_and_calls_come_apart(source: str) -> None:
    llm, backend = make_chat_llm(source + "{# <think> </think> #}")
    with llm:
        raw = f"<think>\nhm\n</think>\n\nI look.\n{CALL}"
        say(llm, backend, raw)
        stream = llm.chat_stream(USER, temperature=0, tools=TOOLS)
        deltas = list(stream.deltas())
        done = stream.completion
        assert done is not None and list(stream) == [] and stream.next_delta() is None
        assert (done.text, done.reasoning, done.raw_text.startswith(raw[:-14])) == ("I look.", "hm", True)
        assert done.content == done.text and done.finish_reason == "tool_calls"
        (call,) = done.tool_calls
        assert (call.name, call.parsed) == ("get_weather", {"city": "Paris", "unit": "C"})
        assert add_up(deltas) == (done.text, done.reasoning, call.arguments)
        say(llm, backend, raw)
        pieces = list(llm.chat_stream(USER, temperature=0, tools=TOOLS))
        assert "".join(pieces) == "I look." and len(pieces) > 2 and "" not in pieces
        say(llm, backend, raw)
        assert llm.chat(USER, temperature=0, tools=TOOLS).message == {
            "role": "assistant",
            "content": "I look.",
            "reasoning_content": "hm",
            "tool_calls": [call.as_dict()],
        }


def test_without_tools_nothing_is_a_call() -> None:
    llm, backend = make_chat_llm(KNOWS)
    with llm:
        for options in ({}, {"tools": TOOLS, "tool_choice": "none"}):
            say(llm, backend, CALL)
            done = llm.chat(USER, temperature=0, **options)
            assert (done.text, done.raw_text, done.tool_calls, done.finish_reason) == (CALL, CALL, (), "stop")


def test_marks_that_are_control_tokens_are_seen_and_not_shown() -> None:
    llm, backend = make_chat_llm(MISTRAL, control=MARKS)
    with llm:
        raw = '[THINK]hm[/THINK]Well.[TOOL_CALLS]roll[ARGS]{}[TOOL_CALLS]get_weather[ARGS]{"city": "x"}'
        say(llm, backend, raw)
        done = llm.chat(USER, temperature=0, tools=TOOLS)
        assert (done.text, done.reasoning, done.raw_text) == ("Well.", "hm", raw)
        assert [(call.name, call.arguments) for call in done.tool_calls] == [
            ("roll", "{}"),
            ("get_weather", '{"city": "x"}'),
        ]
        assert all(len(call.id) == 9 and call.id.isalnum() for call in done.tool_calls)
        assert len({call.id for call in done.tool_calls}) == 2
        say(llm, backend, raw)
        done = llm.chat(USER, temperature=0)  # nobody asked for calls: control tokens are never shown
        assert (done.text, done.reasoning) == ('Well.roll{}get_weather{"city": "x"}', "hm")


def test_one_call_ends_the_answer_where_one_is_wanted() -> None:
    llm, backend = make_chat_llm(MISTRAL, control=MARKS)
    with llm:
        say(llm, backend, "[TOOL_CALLS]roll[ARGS]{}[TOOL_CALLS]roll[ARGS]{}")
        done = llm.chat(USER, temperature=0, tools=TOOLS, parallel_tool_calls=False)
        assert [call.name for call in done.tool_calls] == ["roll"] and done.finish_reason == "tool_calls"
        assert done.raw_text == "[TOOL_CALLS]roll[ARGS]{}"
        llm._shared.call(lambda: None)  # the place is free before the next step
        assert llm.loaded.engine._cache.num_free_slots == 2


def test_a_prompt_that_opens_the_reasoning() -> None:
    llm, backend = make_chat_llm(THINKS, user_defined=["<think>", "</think>"])
    with llm:
        say(llm, backend, "hm\n</think>\n\nYes")
        done = llm.chat(USER, temperature=0)
        assert (done.text, done.reasoning, done.raw_text) == ("Yes", "hm", "hm\n</think>\n\nYes")
        say(llm, backend, "hm, no end")
        done = llm.chat(USER, temperature=0, max_tokens=4)
        assert (done.text, done.reasoning, done.finish_reason) == ("", done.raw_text.rstrip(), "length")


def test_a_cut_call_is_text_and_a_closed_stream_keeps_what_came() -> None:
    llm, backend = make_chat_llm(KNOWS)
    with llm:
        say(llm, backend, CALL)
        done = llm.chat(USER, temperature=0, tools=TOOLS, max_tokens=40)
        assert done.tool_calls == () and done.finish_reason == "length"
        assert done.text == done.raw_text and CALL.startswith(done.text)
        say(llm, backend, f"Yes, yes. {CALL}")
        with llm.chat_stream(USER, temperature=0, tools=TOOLS) as stream:
            first = next(stream)
        assert stream.completion is not None and stream.completion.finish_reason == "cancelled"
        assert stream.completion.text == first


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "get_weather"}}])
@pytest.mark.parametrize(
    ("source", "control"),
    [(CHATML, []), (KNOWS, []), (MISTRAL.replace("THINK]", ""), MARKS[:3])],
    ids=["told", "hermes", "mistral"],
)
def test_calls_that_must_come_are_valid_whatever_the_model_wants(choice: Any, source: str, control: list[str]) -> None:
    llm, backend = make_chat_llm(source, control=control)
    with llm:
        for seed in range(5):
            backend.say([])
            done = llm.chat(USER, tools=TOOLS, tool_choice=choice, seed=seed, temperature=1.5, max_tokens=700)
            assert done.tool_calls and (done.finish_reason == "tool_calls" or done.finish_reason == "length")
            for call in done.tool_calls:
                schema = next(t["function"]["parameters"] for t in TOOLS if t["function"]["name"] == call.name)
                jsonschema.validate(json.loads(call.arguments), schema)
            if choice != "required":
                assert [call.name for call in done.tool_calls] == ["get_weather"]
                assert done.finish_reason == "tool_calls" and done.text == ""


def test_several_answers_are_each_taken_apart() -> None:
    llm, backend = make_chat_llm(KNOWS)
    with llm:
        backend.say([])
        options: dict[str, Any] = {"tools": TOOLS, "tool_choice": "required", "parallel_tool_calls": False}
        answers = llm.chat_many(USER, 3, seed=5, temperature=1.5, max_tokens=700, **options)
        assert len(answers) == 3 and all(len(done.tool_calls) == 1 for done in answers)
        assert len({done.raw_text for done in answers}) > 1
        for seed, done in enumerate(answers, 5):
            again = llm.chat(USER, seed=seed, temperature=1.5, max_tokens=700, **options)
            assert again.tool_calls == done.tool_calls


def test_a_required_call_comes_after_the_reasoning() -> None:
    llm, backend = make_chat_llm(THINKS, user_defined=["<think>", "</think>"])
    with llm:
        say(llm, backend, f"hm {{\n</think>\n\n{CALL}")
        done = llm.chat(USER, tools=TOOLS, tool_choice="required", temperature=0)
        assert done.reasoning == "hm {" and [call.name for call in done.tool_calls] == ["get_weather"]
        say(llm, backend, 'hm\n</think>\n\n{"a": 1}')
        done = llm.chat(USER, schema={"type": "object", "properties": {"a": {"type": "integer"}}}, temperature=0)
        assert (done.reasoning, json.loads(done.text)) == ("hm", {"a": 1})


def test_strict_tools_keep_a_free_answer_in_form() -> None:
    llm, backend = make_chat_llm(KNOWS)
    strict = [{**TOOLS[0], "function": {**TOOLS[0]["function"], "strict": True}}]
    with llm:
        say(llm, backend, "Just text.")
        assert llm.chat(USER, tools=strict, temperature=0).text == "Just text."
        say(llm, backend, 'Well. <tool_call>\n{"name": "get_weather", "arguments": {"town": "Rome", "unit": "C"}}')
        done = llm.chat(USER, tools=strict, temperature=0, max_tokens=400)
        assert done.text.startswith("Well.") and "town" not in done.raw_text
        for call in done.tool_calls:
            jsonschema.validate(call.parsed, SCHEMA)
        assert done.tool_calls


def test_the_round_trip() -> None:
    for source in (CHATML, KNOWS):
        llm, backend = make_chat_llm(source)
        with llm:
            say(llm, backend, CALL)
            done = llm.chat(USER, temperature=0, tools=TOOLS)
            (call,) = done.tool_calls
            messages = [*USER, done.message, call.answer({"degrees": 21})]
            say(llm, backend, "It is 21 degrees.")
            again = llm.chat(messages, temperature=0, tools=TOOLS)
            assert again.text == "It is 21 degrees." and again.finish_reason == "stop"
            prompt = llm.detokenize(again.prompt_token_ids, special=True)
            assert CALL in prompt and '{"degrees": 21}' in prompt
            assert again.timings.reused_tokens >= done.timings.prefill_tokens, "the first turn is in the cache"


def test_the_family_can_be_chosen_by_name() -> None:
    llm, backend = make_chat_llm(KNOWS)
    with llm:
        llm.chat_format.use_family("llama3")
        say(llm, backend, '{"name": "roll", "parameters": {}}')
        assert [call.name for call in llm.chat(USER, temperature=0, tools=TOOLS).tool_calls] == ["roll"]
        with pytest.raises(OptionError, match="no family"):
            llm.chat_format.use_family("harmony")


def test_mistakes_are_found_before_any_work() -> None:
    llm, backend = make_chat_llm(KNOWS)
    with llm:
        template, llm.loaded.template = llm.loaded.template, None
        with pytest.raises(UnsupportedError, match="no chat template"):
            llm.chat(USER)
        llm.loaded.template = template
        with pytest.raises(OptionError, match="leave out json"):
            llm.chat_stream(USER, tools=TOOLS, tool_choice="required", json=True)
        with pytest.raises(OptionError, match="tool_choice"):
            llm.chat_stream(USER, tools=TOOLS, tool_choice="sometimes")
        with pytest.raises(OptionError, match="unknown option toolz"):
            llm.chat_stream(USER, toolz=TOOLS)
        assert backend.num_steps == 0
