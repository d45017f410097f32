"""Change a conversation that a template has refused into one it may accept, by a few documented rules.

Nothing here runs before a template has refused: what a template accepts is rendered as it was given. docs/templates.md
lists the rules for users. Knows roles and contents; renders nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations

from .messages import Conversation

_BETWEEN = "\n\n"
Rule = Callable[[Conversation], Conversation]


def attempts(conversation: Conversation) -> Iterator[tuple[Conversation, tuple[str, ...]]]:
    """Yield changed conversations, the least changed first, each with what was done."""
    seen = [conversation]
    for size in range(1, len(RULES) + 1):
        for chosen in combinations(RULES, size):
            changed, done = conversation, []
            for words, rule in chosen:
                before, changed = changed, rule(changed)
                if changed != before:
                    done.append(words)
            if changed not in seen:
                seen.append(changed)
                yield changed, tuple(done)


def _name_system(conversation: Conversation) -> Conversation:
    return [m | {"role": "system"} if m["role"] == "developer" else m for m in conversation]


def _fill_content(conversation: Conversation) -> Conversation:
    return [m if "content" in m else m | {"content": ""} for m in conversation]


def _fold_system(conversation: Conversation) -> Conversation:
    folded: Conversation = []
    waiting: list[str] = []
    for message in conversation:
        if message["role"] == "system" and isinstance(message.get("content", ""), str):
            waiting.append(message.get("content", ""))
        elif waiting and message["role"] == "user" and isinstance(message.get("content", ""), str):
            folded.append(message | {"content": _BETWEEN.join([*waiting, message.get("content", "")])})
            waiting = []
        elif waiting and message["role"] != "user":
            folded += [{"role": "user", "content": _BETWEEN.join(waiting)}, message]
            waiting = []
        else:
            folded.append(message)
    return [*folded, {"role": "user", "content": _BETWEEN.join(waiting)}] if waiting else folded


def _merge(conversation: Conversation) -> Conversation:
    merged: Conversation = []
    for message in conversation:
        last = merged[-1] if merged else None
        if last is not None and _is_plain(last) and _is_plain(message) and last["role"] == message["role"]:
            merged[-1] = last | {"content": _BETWEEN.join(filter(None, (last["content"], message["content"])))}
        else:
            merged.append(message)
    return merged


def _is_plain(message: dict[str, object]) -> bool:
    return isinstance(message.get("content"), str) and not message.keys() & {"tool_calls", "tool_call_id"}


def _begin_with_user(conversation: Conversation) -> Conversation:
    first = next((i for i, m in enumerate(conversation) if m["role"] != "system"), None)
    if first is None or conversation[first]["role"] != "assistant":
        return conversation
    return [*conversation[:first], {"role": "user", "content": ""}, *conversation[first:]]


RULES: tuple[tuple[str, Rule], ...] = (
    ("the role developer became system", _name_system),
    ("missing content became an empty text", _fill_content),
    ("the system message was put before the first words of the user", _fold_system),
    ("neighbouring messages of one role were merged", _merge),
    ("an empty message of the user was put before the assistant's first", _begin_with_user),
)
