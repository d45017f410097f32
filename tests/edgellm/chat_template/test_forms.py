"""OpenAI's forms of messages become what a template reads: parts of content, arguments of tool calls, reasoning."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest
import tiny_vocabulary

from edgellm.chat_template import ChatTemplate
from edgellm.errors import TemplateError
from edgellm.tokenizer import Tokenizer

TOKENIZER = Tokenizer(tiny_vocabulary.make_bpe(512))
TEXT = "{% for m in messages %}{{ m.role + ':' + m.content }};{% endfor %}"
PARTS = "{% for m in messages %}{{ m.role }}:{% for p in m.content %}{{ p.text }}{% endfor %};{% endfor %}"
PRINTS = "{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}"
BOTH = (
    "{% for m in messages %}{{ m.role }}:{% if m.content is string %}{{ m.content }}{% else %}"
    "{% for p in m.content %}({{ p.text }}){% endfor %}{% endif %};{% endfor %}"
)


def render(source: str, *messages: Any, **options: Any) -> str:
    return ChatTemplate(source, TOKENIZER).render(messages, **options)


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def parts(*texts: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text} for text in texts]


@pytest.mark.parametrize("source", [TEXT, PRINTS])
def test_parts_become_one_text_where_the_template_reads_texts(source: str) -> None:
    assert render(source, user(parts("a", "b")), user("c"), user(["d"])) == "user:a\nb;user:c;user:d;"


def test_a_text_becomes_a_part_where_the_template_reads_parts_only() -> None:
    assert render(PARTS, user("ab"), user(parts("c", "d"))) == "user:ab;user:cd;"


def test_both_stay_where_the_template_reads_both() -> None:
    assert render(BOTH, user("ab"), user(parts("c", "d"))) == "user:ab;user:(c)(d);"


def test_a_template_that_refuses_the_first_conversations_is_asked_in_another_way() -> None:
    source = "{% if messages[0].role != 'assistant' %}{{ raise_exception('no') }}{% endif %}" + TEXT
    assert render(source, {"role": "assistant", "content": parts("a", "b")}) == "assistant:a\nb;"


@pytest.mark.parametrize("kind", ["image_url", "image", "input_audio", "video", "file"])
def test_media_are_refused_by_name(kind: str) -> None:
    for source in (TEXT, PARTS, BOTH):
        with pytest.raises(TemplateError, match=f"message 2 has a part of type '{kind}'; edgellm reads text"):
            render(source, user("a"), user([*parts("a"), {"type": kind, kind: {}}]))


def test_other_parts_are_refused_by_name_or_left_to_the_template() -> None:
    thought = user([{"type": "thinking", "thinking": "hm", "text": "t"}])
    with pytest.raises(
        TemplateError, match="message 1 has a part of type 'thinking'; the template reads parts of text"
    ):
        render(TEXT, thought)
    assert render(BOTH, thought) == "user:(t);"


CALLS = "{% for m in messages if m.tool_calls %}{% for c in m.tool_calls %}"
END = "{% endfor %}{% endfor %}{{ messages[0].content }}"
READERS = {
    "goes through": "{% for k, v in c.function.arguments.items() %}{{ k }}={{ v }} {% endfor %}",
    "writes JSON": "{{ c.function.arguments | tojson }}",
    "prints": "{{ c.function.arguments }}",
    "joins": "{{ '>' + c.function.arguments }}",
}
ARGUMENTS = {"city": "Köln", "days": 2}
AS_TEXT = '{"city": "Köln", "days": 2}'


@pytest.mark.parametrize("given", [ARGUMENTS, AS_TEXT])
@pytest.mark.parametrize(
    ("reader", "expected"),
    [("goes through", "city=Köln days=2 "), ("writes JSON", AS_TEXT), ("prints", AS_TEXT), ("joins", ">" + AS_TEXT)],
)
def test_arguments_come_in_the_form_that_the_template_reads(given: Any, reader: str, expected: str) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": given}}
    answer = {"role": "assistant", "content": "", "tool_calls": [call]}
    assert render(CALLS + READERS[reader] + END, user("."), answer) == expected + "."
    short = answer | {"tool_calls": [call["function"]]}
    assert render((CALLS + READERS[reader] + END).replace("c.function", "(c.function or c)"), user("."), short) == (
        expected + "."
    )


@pytest.mark.parametrize("text", ["{bad", "[1]", "[" * 5000])
def test_arguments_that_are_no_object_stay_as_the_model_wrote_them(text: str) -> None:
    answer = {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": text}}]}
    assert render(CALLS + "{{ c.function.arguments }}" + END, user("."), answer) == text + "."
    assert render(CALLS + READERS["writes JSON"] + END, user("."), answer).startswith('"')


def test_reasoning_has_the_names_that_transformers_gives_it() -> None:
    source = "{% for m in messages %}{{ m.reasoning_content }}|{{ m.thinking }}{% endfor %}"
    for name in ("reasoning_content", "thinking", "reasoning"):
        assert render(source, {"role": "assistant", "content": "", name: "hm"}) == "hm|hm"


def test_objects_of_clients_become_mappings() -> None:
    @dataclasses.dataclass
    class Message:
        role: str
        content: str

    pydantic = SimpleNamespace(model_dump=lambda: {"role": "user", "content": "b", "name": None})
    assert render(TEXT, Message("user", "a"), pydantic) == "user:a;user:b;"


def test_values_that_json_does_not_know_are_refused_by_name() -> None:
    with pytest.raises(TemplateError, match="message 1 holds a object, which JSON does not know"):
        render(TEXT, user(object()))
    with pytest.raises(TemplateError, match=r"template_args\['x'\] holds a set"):
        render(TEXT, user("a"), template_args={"x": {1}})
    deep: Any = "a"
    for _ in range(200):
        deep = [deep]
    with pytest.raises(TemplateError, match="message 1 is nested more than 100 deep"):
        render(TEXT, user(deep))


def test_template_args_reach_the_template_and_take_no_place_of_others() -> None:
    assert render("{{ enable_thinking }}", user("a"), template_args={"enable_thinking": False}) == "False"
    with pytest.raises(TemplateError, match="template_args may not hold 'tools'"):
        render(TEXT, user("a"), template_args={"tools": []})


SEVERAL = {"default": "plain", "tool_use": "tools:{{ tools | length }}", "rag": "rag"}


def test_one_of_several_templates_is_chosen_as_transformers_does() -> None:
    metadata = {"tokenizer.chat_template": "plain", "tokenizer.chat_templates": ["tool_use", "rag"]}
    metadata |= {f"tokenizer.chat_template.{name}": SEVERAL[name] for name in ("tool_use", "rag")}
    for template in (ChatTemplate(SEVERAL, TOKENIZER), ChatTemplate.from_metadata(metadata, TOKENIZER)):
        assert template.render([user("a")]) == "plain"
        assert template.render([user("a")], tools=[{"type": "function"}]) == "tools:1"
        assert template.render([user("a")], documents=[{"text": "x"}]) == "plain"
        assert template.render([user("a")], name="rag") == "rag"
    with pytest.raises(TemplateError, match="no chat template named 'x'; it has default, rag, tool_use"):
        template.render([user("a")], name="x")
    with pytest.raises(TemplateError, match="several chat templates and no default: name one of rag, tool_use"):
        ChatTemplate({n: SEVERAL[n] for n in ("rag", "tool_use")}, TOKENIZER).render([user("a")])


TURNS = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"


@pytest.mark.parametrize(
    ("source", "content", "expected"),
    [
        (TURNS, "It is", "<|im_start|>assistant\nIt is"),
        (TURNS, "It is ", "<|im_start|>assistant\nIt is "),
        (TURNS.replace("m.content", "m.content | trim"), " It is ", "<|im_start|>assistant\nIt is"),
        (TURNS.replace("m.content", "m.content[0].text"), parts("It"), "<|im_start|>assistant\nIt"),
    ],
)
def test_the_last_message_is_continued(source: str, content: Any, expected: str) -> None:
    messages = [user(content if isinstance(content, list) else "Hi"), {"role": "assistant", "content": content}]
    template = ChatTemplate(source, TOKENIZER)
    prompt = template.prompt(messages, False, continue_final_message=True)
    assert prompt.text.endswith("<|im_end|>\n" + expected)
    assert prompt.token_ids == TOKENIZER.encode(prompt.text, special=True)


def test_what_cannot_be_continued_is_refused() -> None:
    template = ChatTemplate(TURNS, TOKENIZER)
    with pytest.raises(TemplateError, match="give add_generation_prompt=False"):
        template.prompt([user("a")], continue_final_message=True)
    with pytest.raises(TemplateError, match="the last message has no text to continue"):
        template.prompt([user("a"), {"role": "assistant"}], False, continue_final_message=True)
    with pytest.raises(TemplateError, match="leaves the last message out"):
        ChatTemplate("x{{ messages[0].content }}", TOKENIZER).prompt(
            [user("a"), user("b")], False, continue_final_message=True
        )
