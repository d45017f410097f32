"""Find out which forms of messages a template reads, by rendering short conversations with it once.

Some templates take content as text, some as a list of parts, some both; some print a tool call's arguments as they are,
some go through them. Knows the forms, not the templates: no list of names could be complete. Asked by `__init__.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from . import messages
from .messages import Conversation

_WORD = "qzxprobe"  # short, and in no template
_TOOL = {
    "type": "function",
    "function": {
        "name": "probe",
        "description": "probe",
        "parameters": {"type": "object", "properties": {_WORD: {"type": "string", "description": "probe"}}},
    },
}

# Renders a conversation with tools, or returns None where the template refuses it.
Render = Callable[[Conversation, Sequence[Any] | None], str | None]


@dataclass(frozen=True, slots=True)
class Forms:
    """What a template reads. text, parts: content as a text, as a list. arguments_as_text: of tool calls."""

    text: bool
    parts: bool
    arguments_as_text: bool

    def fit(self, conversation: Conversation) -> Conversation:
        """Return the conversation in forms that the template reads."""
        if not self.parts:
            conversation = messages.with_text(conversation)
        elif not self.text:
            conversation = messages.with_parts(conversation)
        return messages.with_arguments(conversation, self.arguments_as_text)


def find(render: Render) -> Forms:
    """Ask a template."""
    parts = _reads(render([{"role": "user", "content": [{"type": "text", "text": _WORD}]}], None))
    text = _reads(render([{"role": "user", "content": _WORD}], None))
    if not text and not parts:  # it refuses every short conversation; text is what most read
        return Forms(True, False, False)
    return Forms(text, parts, _wants_text(render, text))


def _reads(written: str | None) -> bool:
    # A list that is printed instead of read shows the names of its fields.
    return written is not None and _WORD in written and "'type'" not in written and '"type"' not in written


def _wants_text(render: Render, text: bool) -> bool:
    """Whether arguments must be JSON text: as a mapping they are refused, or printed as Python writes them."""
    as_mapping = render(_call({_WORD: "probe"}, text), [_TOOL])
    if as_mapping is not None and f"'{_WORD}'" not in as_mapping:
        return False
    as_text = render(_call(f'{{"{_WORD}": "probe"}}', text), [_TOOL])
    return as_text is not None and f'"{_WORD}": "probe"' in as_text


def _call(arguments: Any, text: bool) -> Conversation:
    call = {"id": "probe0001", "type": "function", "function": {"name": "probe", "arguments": arguments}}
    conversation: Conversation = [
        {"role": "user", "content": "probe"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "probe0001", "name": "probe", "content": "probe"},
    ]
    return conversation if text else messages.with_parts(conversation)
