"""What a model calls: finished calls, and pieces of calls that are still being written, in OpenAI's shapes.

Knows neither how a model spells a call nor where its text comes from. Next hop: `families`, where calls are read.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .reader import MalformedError

_LETTERS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


class EnoughError(Exception):
    """As many calls as were wanted are finished. Never leaves this folder."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call of a function that the request offered.

    id: distinct within a conversation. name: one of the given names. arguments: a JSON object, as the model wrote it.
    parsed: the same as a dict.
    """

    id: str
    name: str
    arguments: str
    parsed: dict[str, Any] = field(compare=False)

    def as_dict(self) -> dict[str, Any]:
        """OpenAI's shape, as it stands in a message."""
        return {"id": self.id, "type": "function", "function": {"name": self.name, "arguments": self.arguments}}

    def answer(self, result: Any) -> dict[str, Any]:
        """Return the message that gives the call's result back; anything but a text is written as JSON."""
        content = result if isinstance(result, str) else json.dumps(result, ensure_ascii=False, default=str)
        return {"role": "tool", "tool_call_id": self.id, "name": self.name, "content": content}


@dataclass(frozen=True, slots=True)
class CallDelta:
    """A piece of a call. The first of an index has id and name and no arguments yet; those that follow have arguments only."""

    index: int
    id: str | None = None
    name: str | None = None
    arguments: str = ""

    def as_dict(self) -> dict[str, Any]:
        """OpenAI's shape, as it stands in a chunk of a stream."""
        function = {"arguments": self.arguments}
        if self.name is None:
            return {"index": self.index, "function": function}
        return {"index": self.index, "id": self.id, "type": "function", "function": {"name": self.name, **function}}


@dataclass(frozen=True, slots=True)
class Delta:
    """What an answer grew by: text for the user, reasoning, or pieces of calls; one of the three."""

    content: str = ""
    reasoning: str = ""
    tool_calls: tuple[CallDelta, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """OpenAI's shape; reasoning under the name that most servers have given it."""
        shown: dict[str, Any] = {}
        if self.content:
            shown["content"] = self.content
        if self.reasoning:
            shown["reasoning_content"] = self.reasoning
        if self.tool_calls:
            shown["tool_calls"] = [call.as_dict() for call in self.tool_calls]
        return shown


class Calls:
    """Collects the calls of one answer while a family reads them.

    offered: the JSON Schema of the arguments of each function that may be called.
    finished: the calls so far. A call is announced as soon as its name is known to be an offered one and its arguments
    begin, and is finished when they are a whole JSON object. One that breaks off in between is not among `finished`, and
    its index is not given out again. limit: how many may be finished.
    """

    def __init__(
        self, offered: Mapping[str, Mapping[str, Any]], make_id: Callable[[int], str], limit: int = 16
    ) -> None:
        self.offered = offered
        self.finished: list[ToolCall] = []
        self._limit = limit
        self._make_id = make_id
        self._num_announced = 0
        self._open: tuple[str, str] | None = None
        self._arguments: list[str] = []
        self._news: list[CallDelta] = []

    def begin(self, name: str) -> None:
        """Announce a call. Raises MalformedError if no such function was offered."""
        if name not in self.offered:
            raise MalformedError
        self._open = self._make_id(self._num_announced), name
        self._news.append(CallDelta(self._num_announced, *self._open))
        self._arguments = []
        self._num_announced += 1

    def write(self, piece: str) -> None:
        """Take a piece of the arguments of the call that was announced last."""
        self._arguments.append(piece)
        last = self._news[-1] if self._news else None
        if last is not None and last.name is None:
            self._news[-1] = CallDelta(last.index, arguments=last.arguments + piece)
        else:
            self._news.append(CallDelta(self._num_announced - 1, arguments=piece))

    def end(self) -> None:
        """Finish the call. Raises MalformedError if its arguments are not a JSON object, EnoughError if it is the last."""
        assert self._open is not None
        arguments = "".join(self._arguments)
        parsed = load_object(arguments)
        self.finished.append(ToolCall(*self._open, arguments, parsed))
        self._open = None
        if len(self.finished) >= self._limit:
            raise EnoughError

    def drop(self) -> None:
        """Give up the call that is not finished, if there is one."""
        self._open = None

    def take_news(self) -> tuple[CallDelta, ...]:
        """Return what was announced and written since the last time."""
        news, self._news = tuple(self._news), []
        return news


def load_object(text: str) -> dict[str, Any]:
    """Return a JSON object. Raises MalformedError for anything else."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):  # numbers of thousands of digits are ValueErrors too
        raise MalformedError from None
    if not isinstance(value, dict):
        raise MalformedError
    return value


def make_call_id(prompt_ids: Iterable[int], index: int, prefix: str) -> str:
    """Return a call's id: the same for the same prompt and index, another on every turn of a conversation.

    prefix: comes before nine letters and digits, which is all that Mistral's templates accept.
    """
    said = f"{','.join(map(str, prompt_ids))};{index}".encode()
    number = int.from_bytes(hashlib.blake2b(said, digest_size=8).digest(), "little")
    letters = []
    for _ in range(9):
        number, place = divmod(number, len(_LETTERS))
        letters.append(_LETTERS[place])
    return prefix + "".join(letters)
