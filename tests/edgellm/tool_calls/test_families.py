"""Each family reads what its models write, and what its own templates show; everything else stays text."""

from __future__ import annotations

import json
from typing import Any

import pytest

from edgellm.errors import OptionError
from edgellm.tool_calls.calls import Calls
from edgellm.tool_calls.families import FAMILIES, get_family, pick_family
from edgellm.tool_calls.splitter import Splitter

CITY = {"properties": {"city": {"type": "string"}, "days": {"type": "array"}, "when": {"type": ["string", "null"]}}}
OFFERED: dict[str, Any] = {"get_weather": CITY, "send-mail": {}, "f": {}}


def split(family: str, text: str, limit: int = 16, size: int = 100_000) -> tuple[str, list[tuple[str, Any]]]:
    """-> content, and the calls as (name, arguments)."""
    calls = Calls(OFFERED, lambda index: f"call_{index}", limit)
    splitter = Splitter(None, False, get_family(family), calls)
    for start in range(0, len(text), size):
        splitter.push(text[start : start + size])
    splitter.finish()
    return splitter.content, [(call.name, call.parsed) for call in calls.finished]


PARIS = ("get_weather", {"city": "Paris"})
ROME = ("get_weather", {"city": "Rome", "days": [1, 2]})
OUTPUTS = [
    ("hermes", '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>', "", [PARIS]),
    ("hermes", '<tool_call>{"arguments": {"city": "Paris"}, "name": "get_weather"}</tool_call>', "", [PARIS]),
    ("hermes", '<tool_call>\n{"name": "get_weather", "arguments": "{\\"city\\": \\"Paris\\"}"}\n', "", [PARIS]),
    ("hermes", '<tool_call>\n{"name": "f"}\n</tool_call>', "", [("f", {})]),
    ("hermes", '<tool_call>\n{"name": "f", "arguments": null}\n</tool_call>', "", [("f", {})]),
    (
        "hermes",
        "I look it up.\n"
        '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>\n'
        '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome", "days": [1, 2]}}\n</tool_call>\n',
        "I look it up.",
        [PARIS, ROME],
    ),
    (
        "hermes",
        '<tool_call>\n{"type": "function", "function": {"name": "f", "arguments": {}}, "id": "x"}\n</tool_call>',
        "",
        [("f", {})],
    ),
    ("llama3", '{"name": "get_weather", "parameters": {"city": "Paris"}}', "", [PARIS]),
    ("llama3", '<|python_tag|>{"name": "get_weather", "parameters": {"city": "Paris"}}', "", [PARIS]),
    ("llama3", '\n{"type": "function", "name": "get_weather", "parameters": {"city": "Paris"}}', "", [PARIS]),
    ("llama3", '{"function": "get_weather", "parameters": {"city": "Paris"}}', "", [PARIS]),
    ("llama3", 'Well: {"name": "f", "parameters": {}}', 'Well: {"name": "f", "parameters": {}}', []),
    ("mistral", '[TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "Paris"}}]', "", [PARIS]),
    (
        "mistral",
        '[TOOL_CALLS][{"name": "get_weather", "arguments": {"city": "Paris"}, "id": "VvvODy9mT"}, '
        '{"name": "get_weather", "arguments": {"city": "Rome", "days": [1, 2]}, "id": "0d9rNaFGN"}]',
        "",
        [PARIS, ROME],
    ),
    ("mistral-args", '[TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}', "", [PARIS]),
    (
        "mistral-args",
        'Sure.[TOOL_CALLS]get_weather[CALL_ID]VvvODy9mT[ARGS]{"city": "Paris"}[TOOL_CALLS]send-mail[ARGS]{}',
        "Sure.",
        [PARIS, ("send-mail", {})],
    ),
    ("granite", '<|tool_call|>[{"name": "get_weather", "arguments": {"city": "Paris"}}]', "", [PARIS]),
    ("nemotron", '<TOOLCALL>[{"name": "get_weather", "arguments": {"city": "Paris"}}]</TOOLCALL>', "", [PARIS]),
    (
        "command-r",
        '<|START_ACTION|>[\n    {"tool_call_id": "0", "tool_name": "get_weather", "parameters": {"city": "Paris"}}\n]'
        "<|END_ACTION|>",
        "",
        [PARIS],
    ),
    (
        "tagged",
        "Hm.\n<tool_call>\n<function=get_weather>\n<parameter=city>\nRome\n</parameter>\n<parameter=days>\n[1, 2]\n</parameter>\n"
        "</function>\n</tool_call>\n<tool_call>\n<function=f>\n</function>\n</tool_call>",
        "Hm.",
        [ROME, ("f", {})],
    ),
    (
        "tagged",
        "<function=get_weather>\n<parameter=city>\n12\n</parameter>\n</function>",
        "",
        [("get_weather", {"city": "12"})],
    ),
    (
        "tagged",
        "<tool_call><function=f><parameter=a>1.5</parameter><parameter=b>\ntwo\nlines\n</parameter>"
        "<parameter=c>True</parameter><parameter=d>NaN</parameter></function></tool_call>",
        "",
        [("f", {"a": 1.5, "b": "two\nlines", "c": True, "d": "NaN"})],
    ),
    (
        "tagged",
        "<tool_call><function=get_weather><parameter=when>12</parameter></function></tool_call>"
        "<tool_call><function=get_weather><parameter=when>null</parameter></function></tool_call>",
        "",
        [("get_weather", {"when": "12"}), ("get_weather", {"when": None})],
    ),
    (
        "seed",
        "<seed:tool_call>\n<function=f>\n<parameter=a>x</parameter>\n</function>\n</seed:tool_call>",
        "",
        [("f", {"a": "x"})],
    ),
    (
        "glm",
        "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Rome</arg_value>\n<arg_key>days</arg_key>\n"
        "<arg_value>[1, 2]</arg_value>\n</tool_call>\n<tool_call>f\n</tool_call>",
        "",
        [ROME, ("f", {})],
    ),
    ("glm", "<tool_call>f<arg_key>a</arg_key><arg_value>x</arg_value></tool_call>", "", [("f", {"a": "x"})]),
    (
        "lfm2",
        "<|tool_call_start|>[get_weather(city='Rome', days=[1, 2]), f()]<|tool_call_end|>Wait.",
        "Wait.",
        [ROME, ("f", {})],
    ),
    ("lfm2", '<|tool_call_start|>[{"name": "f", "arguments": {}}]<|tool_call_end|>', "", [("f", {})]),
    (
        "gemma4",
        '<|tool_call>call:get_weather{city:<|"|>Rome<|"|>,days:[1,2]}<tool_call|><|tool_call>call:f{}<tool_call|>',
        "",
        [ROME, ("f", {})],
    ),
    (
        "gemma4",
        '<|tool_call>call:f{a:{<|"|>b c<|"|>:true, d:[]},e:-1.5,g:[{h:null}],i:{},j:<|"|>"x" {,}<|"|>}<tool_call|>',
        "",
        [("f", {"a": {"b c": True, "d": []}, "e": -1.5, "g": [{"h": None}], "i": {}, "j": '"x" {,}'})],
    ),
    ("tool-calls-tag", '<tool_calls>[{"name": "f", "arguments": {}, "id": "1"}]</tool_calls>', "", [("f", {})]),
    (
        "tool-calls-tag",
        '<tool_calls>\n{"name": "f", "arguments": {}}\n{"name": "f", "arguments": {}}\n</tool_calls>',
        "",
        [("f", {})] * 2,
    ),
    (
        "lfm2",
        "<|tool_call_start|>[f(a='\\d+\\n\\'', b=-1, c=None, d={'e': True})]",
        "",
        [("f", {"a": "\\d+\n'", "b": -1, "c": None, "d": {"e": True}})],
    ),
    ("gigachat", '<|function_call|>{"name": "f", "arguments": {}}', "", [("f", {})]),
    ("json", '```tool_code\nget_weather(city="Paris")\n```', "", [PARIS]),
    ("json", '```json\n{"name": "get_weather", "parameters": {"city": "Paris"}}\n```', "", [PARIS]),
    ("json", 'Here:\n```tool_code\n[{"name": "get_weather", "parameters": {"city": "Paris"}}]\n```', "Here:", [PARIS]),
    ("json", '[{"name": "get_weather", "parameters": {"city": "Paris"}}]', "", [PARIS]),
    ("json", '{"name": "get_weather", "parameters": {"city": "Paris"}}\n', "", [PARIS]),
]


@pytest.mark.parametrize(("family", "text", "content", "calls"), OUTPUTS)
def test_what_models_write(family: str, text: str, content: str, calls: list[Any]) -> None:
    for size in (len(text), 1, 2, 3, 5, 7):
        assert split(family, text, size=size) == (content, calls)


@pytest.mark.parametrize("name", FAMILIES)
def test_each_family_reads_what_it_writes(name: str) -> None:
    family = get_family(name)
    arguments = '{"text": "</tool_call> ]} \\" [ARGS] ``` ;", "n": {"a": [1.5e3, null]}}'
    texts = [before + arguments + after for before, after in map(family.around, ("f", "get_weather"))]
    texts = texts[: family.max_calls]
    content, calls = split(name, family.head + family.join.join(texts) + family.tail)
    assert content == ""
    assert calls == [(called, json.loads(arguments)) for called in ("f", "get_weather")[: len(texts)]]


@pytest.mark.parametrize(
    ("family", "text"),
    [
        ("hermes", '<tool_call>{"name": "unknown", "arguments": {}}</tool_call>'),
        ("hermes", '<tool_call>{"name": "f", "arguments": {"a": tru}}</tool_call>'),
        ("hermes", '<tool_call>{"name": "f", "arguments": {"a": 1'),
        ("hermes", '<tool_call>{"name": "f", "arguments": [1]}</tool_call>'),
        ("hermes", "<tool_call>f(a=1)</tool_call>"),
        ("hermes", '<tool_call>{"name": "f", "arguments": "text"}</tool_call>'),
        ("hermes", '<tool_call>{"arguments": {}}</tool_call>'),
        ("hermes", '<tool_call>{"name": "f", "arguments": {"n": ' + "9" * 5000 + "}}</tool_call>"),
        ("hermes", "a <tool_call> and <tool_call> b <tool_"),
        ("llama3", '{"city": "Paris", "name": "f"}'),
        ("llama3", '<|python_tag|>brave_search.call(query="x")'),
        ("mistral", '[TOOL_CALLS] [{"name": "unknown", "arguments": {}}]'),
        ("mistral", "[TOOL_CALLS]f[ARGS]1"),
        ("mistral", "[TOOL_CALLS]"),
        ("json", '```json\n{"answer": 42}\n```\nThat is it.'),
        ("json", "```python\nprint(1)\n```"),
        ("json", "[1, 2, 3]"),
        ("json", "```tool_code\nprint(1)\n```"),
        ("json", "```json\nf(1)\n```"),
        ("tagged", "<tool_call><function=unknown></function></tool_call>"),
        (
            "tagged",
            "<tool_call><function=f><parameter=a>1</parameter><parameter=a>2</parameter></function></tool_call>",
        ),
        ("tagged", "<tool_call><function=f><parameter=a>1"),
        ("glm", "<tool_call>f<arg_key>a</arg_key></tool_call>"),
        ("lfm2", "<|tool_call_start|>[f(g())]<|tool_call_end|>"),
        ("gemma4", "<|tool_call>call:f{a:b}<tool_call|>"),
        ("gemma4", "<|tool_call>call:unknown{}<tool_call|>"),
        ("gemma4", "<|tool_call>call:f{a:1e999}<tool_call|>"),
        ("gemma4", '<|tool_call>call:f{a:<|"|>b'),
        ("gemma4", "<|tool_call>call:f{a:" + "[" * 500),
        ("lfm2", "<|tool_call_start|>[f(*[1])]<|tool_call_end|>"),
        ("lfm2", "<|tool_call_start|>[f(**{})]<|tool_call_end|>"),
        ("lfm2", "<|tool_call_start|>" + "(" * 9000),
        ("lfm2", "<|tool_call_start|>[f(a={1, 2})]<|tool_call_end|>"),
        ("lfm2", "<|tool_call_start|>[f(a=1e999)]<|tool_call_end|>"),
        ("lfm2", "<|tool_call_start|>[f(), unknown()]<|tool_call_end|>"),
        ("lfm2", "<|tool_call_start|>" + "-" * 15000 + "1"),
    ],
)
def test_what_is_no_call_stays_text_to_the_letter(family: str, text: str) -> None:
    for size in (len(text), 1, 2, 7):
        assert split(family, text, size=size) == (text, [])


def test_a_broken_second_call_stays_text_behind_the_first() -> None:
    content, calls = split("mistral", '[TOOL_CALLS][{"name": "f", "arguments": {}}, {"name": "f", "argu')
    assert (content, calls) == (', {"name": "f", "argu', [("f", {})])


def test_one_call_where_one_is_wanted() -> None:
    two = '[TOOL_CALLS][{"name": "f", "arguments": {}}, {"name": "f", "arguments": {}}]'
    assert split("mistral", two, limit=1) == ("", [("f", {})])


@pytest.mark.parametrize(
    ("shown", "family"),
    [
        ("...<tool_call>\\n{...", "hermes"),
        ("Environment: ipython <|python_tag|>", "llama3"),
        ('<|start_header_id|> {"name": function name, "parameters": ...}', "llama3"),
        ("[AVAILABLE_TOOLS] [TOOL_CALLS][", "mistral"),
        ("[TOOL_CALLS] name [ARGS]", "mistral-args"),
        ("<|tool_call|> <tool_call>", "granite"),
        ("<TOOLCALL>", "nemotron"),
        ("<|START_ACTION|>", "command-r"),
        ("<tool_call> <function=name>", "tagged"),
        ("<tool_call>{name}<arg_key>", "glm"),
        ("<seed:tool_call><function=name>", "seed"),
        ("<|tool_call_start|>", "lfm2"),
        ("<|tool_call>call:", "gemma4"),
        ("<tool_calls>[", "tool-calls-tag"),
        ("<|function_call|>", "gigachat"),
    ],
)
def test_a_template_shows_its_family(shown: str, family: str) -> None:
    assert pick_family("{% if tools %}" + shown + "{% endif %}", lambda text: 3).name == family


def test_a_vocabulary_shows_its_family_where_the_template_does_not() -> None:
    for token, family in (("<|tool_call_start|>", "lfm2"), ("<tool_call>", "hermes"), ("<|python_tag|>", "llama3")):
        assert pick_family("{{ tools }}", {token: 5}.get).name == family
    assert pick_family("{{ tools }}", {}.get).name == "json"


def test_an_unknown_family_is_an_error() -> None:
    with pytest.raises(OptionError, match="'harmony'.*hermes, llama3"):
        get_family("harmony")
