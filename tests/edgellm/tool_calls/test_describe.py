"""Models whose template knows no tools are told in words, and read their history as plain text."""

from __future__ import annotations

import pytest

from edgellm.errors import TemplateError
from edgellm.tool_calls.describe import knows_tools, tell_of_tools
from edgellm.tool_calls.request import ToolRequest, check_request

TOOLS = check_request([{"type": "function", "function": {"name": "f", "description": "Do <it>."}}])


@pytest.mark.parametrize(
    ("source", "knows"),
    [
        ("{%- if tools %}x{% endif %}", True),
        ("{{ tools | tojson }}", True),
        ("{% set available_tools = tools %}", True),
        ("{% for m in messages %}{{ m.content }}{% endfor %} use tools", False),
        ("{{ 'your tools are' }}{# tools #}", False),
        ('{{ message.tools }}{{ xml_tools }}{{ "it\'s tools" }}', False),
    ],
)
def test_a_template_knows_tools_if_it_uses_their_name(source: str, knows: bool) -> None:
    assert knows_tools(source) is knows


def test_tools_go_into_the_system_message() -> None:
    user = {"role": "user", "content": "Hi"}
    (system, *rest) = tell_of_tools([user], TOOLS)
    assert system["role"] == "system" and rest == [user]
    assert '{"name": "f", "description": "Do <it>.", "parameters"' in system["content"]
    assert "<tool_call>" in system["content"]
    joined = tell_of_tools([{"role": "system", "content": "Be brief."}, user], TOOLS)
    assert joined == [{"role": "system", "content": f"Be brief.\n\n{system['content']}"}, user]
    assert tell_of_tools([user], ToolRequest()) == [user]


def test_calls_and_results_become_text() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    other = {"id": "2", "type": "function", "function": {"name": "f", "arguments": {"a": 2}}}
    messages = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": None, "tool_calls": [call, other]},
        {"role": "tool", "tool_call_id": "1", "content": "one"},
        {"role": "tool", "tool_call_id": "2", "content": [{"type": "text", "text": "two"}]},
        {"role": "assistant", "content": "Done.", "tool_calls": []},
    ]
    assert tell_of_tools(messages, ToolRequest()) == [
        {"role": "user", "content": "Hi"},
        {
            "role": "assistant",
            "content": '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>\n'
            '<tool_call>\n{"name": "f", "arguments": {"a": 2}}\n</tool_call>',
        },
        {
            "role": "user",
            "content": "<tool_response>\none\n</tool_response>\n<tool_response>\ntwo\n</tool_response>",
        },
        {"role": "assistant", "content": "Done.", "tool_calls": []},
    ]


@pytest.mark.parametrize("calls", [5, True, "f", {"function": {}}, [5], ["f"], [{"function": 5}], [None]])
def test_calls_that_are_none_are_refused_by_number(calls: object) -> None:
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": None, "tool_calls": calls}]
    with pytest.raises(TemplateError, match="message 2 "):
        tell_of_tools(messages, TOOLS)
