"""Render a conversation with the model file's own Jinja template, in a sandbox, into token ids.

A template comes from a stranger and so does the text in the messages. The template can run no code; the messages can
write no control token: only the template's own text becomes one. Knows Jinja and messages; ids come from `tokenizer`.
The names a template may use are those Transformers offers (its chat template documentation).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn

from .errors import TemplateError
from .tokenizer import Tokenizer

if TYPE_CHECKING:
    from jinja2 import Template

Message = Mapping[str, Any]

# Stand-ins for the characters of user text that must not become part of a control token. Noncharacters: no text has them.
_STAND_INS = [chr(c) for c in range(0xFDD0, 0xFDF0)]


class ChatTemplate:
    """A model's chat template. Raises TemplateError, in one line, for everything that goes wrong while rendering."""

    def __init__(self, source: str, tokenizer: Tokenizer, now: Callable[[], datetime] = datetime.now) -> None:
        """Keep the template; it is compiled when first used. now: the clock of `strftime_now`."""
        self.source = source
        self._tokenizer = tokenizer
        self._now = now

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any], tokenizer: Tokenizer) -> ChatTemplate:
        """Take `tokenizer.chat_template`. Raises TemplateError where the file has none: a guessed one would mislead."""
        source = metadata.get("tokenizer.chat_template")
        if not isinstance(source, str) or not source.strip():
            raise TemplateError(
                "the model file has no chat template: it continues text but was not made to chat; use it without one"
            )
        return cls(source, tokenizer)

    def render_ids(self, messages: Sequence[Message], add_generation_prompt: bool = True) -> list[int]:
        """Return the prompt's ids: BOS exactly once where the model wants it, no EOS, user text without control tokens.

        messages: mappings with "role" and "content". add_generation_prompt: end where the assistant's answer begins.
        """
        text = self.render(messages, add_generation_prompt)
        guard = _Guard(self._tokenizer)
        if not any(guard.touches(value) for value in _strings(list(messages))):
            return self._tokenizer.encode_chat(text)
        marked = self._render(guard.mark(list(messages)), add_generation_prompt)
        return self._tokenizer.encode_chat(*guard.unmark(marked))

    def render(self, messages: Sequence[Message], add_generation_prompt: bool = True) -> str:
        """Return the prompt as text, control tokens by their names: to be read, not to be tokenised."""
        _check(messages)
        return self._render(list(messages), add_generation_prompt)

    def _render(self, messages: list[Any], add_generation_prompt: bool) -> str:
        names = {
            name: "" if token is None else self._tokenizer.token_text(token)
            for name, token in (
                ("bos_token", self._tokenizer.bos_id),
                ("eos_token", self._tokenizer.eos_id),
                ("unk_token", self._tokenizer.unk_id),
                ("pad_token", self._tokenizer.pad_id),
            )
        }
        try:
            text: str = self._template.render(
                messages=messages, tools=None, documents=None, add_generation_prompt=add_generation_prompt, **names
            )
        except TemplateError:
            raise
        except (Exception, RecursionError, MemoryError) as error:  # the template is a stranger's: it can raise anything
            raise TemplateError(_describe(error)) from None
        return text

    @cached_property
    def _template(self) -> Template:
        environment = _make_environment()

        def strftime_now(form: str) -> str:
            return self._now().strftime(form)

        environment.globals |= {"raise_exception": _raise_exception, "strftime_now": strftime_now}
        template: Template = environment.from_string(self.source)
        return template


def _check(messages: Sequence[Message]) -> None:
    for number, message in enumerate(messages, 1):
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise TemplateError(f"message {number} must be a mapping with a text as its role, not {message!r:.80}")


def _raise_exception(message: object) -> NoReturn:
    raise TemplateError(f"the model's chat template refuses this conversation: {_one_line(message)}")


def _one_line(text: object) -> str:
    return " ".join(str(text).split())[:300]


def _describe(error: BaseException) -> str:
    what = _one_line(error)
    line = getattr(error, "lineno", None)
    where = f" at line {line}" if isinstance(line, int) else ""
    return f"the model's chat template cannot be rendered{where}: {type(error).__name__}{': ' if what else ''}{what}"


def _to_json(value: Any, ensure_ascii: bool = False, indent: int | None = None, **options: Any) -> str:
    # Jinja's own filter escapes for HTML and sorts keys; templates are written for this one.
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **options)


def _make_environment() -> Any:
    from jinja2 import nodes
    from jinja2.ext import Extension, loopcontrols
    from jinja2.parser import Parser
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """`{% generation %}` marks the assistant's text for training; here its content is all that matters."""

        tags = {"generation"}  # noqa: RUF012 (jinja2 declares it as an instance variable)

        def parse(self, parser: Parser) -> nodes.Node | list[nodes.Node]:
            next(parser.stream)
            body: list[nodes.Node] = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return body

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    return environment


def _strings(value: Any) -> Iterator[str]:
    """Yield every text in a message, except the names of fields."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _strings(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _strings(item)


class _Guard:
    """Marks the places in user text that could become part of a control token, through rendering and back.

    A marked character is replaced by a stand-in of its own, so that trimming, cutting and joining by the template carry
    the mark along. Only spellings of control tokens are marked, and ends and beginnings that template text could complete.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._texts = tokenizer.guarded_texts
        self._stand_ins: dict[str, str] = {}

    def touches(self, text: str) -> bool:
        """Return whether a text needs any mark."""
        return next(self._places(text), None) is not None

    def mark(self, value: Any) -> Any:
        """Return a copy of messages with stand-ins in their texts."""
        if isinstance(value, str):
            letters = list(value)
            for place in self._places(value):
                letters[place] = self._stand_in(value[place])
            return "".join(letters)
        if isinstance(value, Mapping):
            return {key: self.mark(item) for key, item in value.items()}
        return [self.mark(item) for item in value] if isinstance(value, (list, tuple)) else value

    def unmark(self, text: str) -> tuple[str, list[int]]:
        """Return the rendered text with its real characters, and the sorted places that were marked."""
        real = {stand_in: letter for letter, stand_in in self._stand_ins.items()}
        places = [i for i, letter in enumerate(text) if letter in real]
        return text.translate(str.maketrans(real)), places

    def _places(self, text: str) -> Iterator[int]:
        at = 0
        while (found := self._tokenizer.find_guarded(text, at)) is not None:
            yield found[0]
            at = found[0] + 1
        tail, head = text[-self._longest :], text[: self._longest]
        for spelled in self._texts:
            if (length := _overlap(tail, spelled)) and length < len(spelled):
                yield len(text) - length
            if (length := _overlap(spelled, head)) and length < len(spelled):
                yield length - 1

    @cached_property
    def _longest(self) -> int:
        return max(map(len, self._texts), default=0)

    def _stand_in(self, letter: str) -> str:
        if letter not in self._stand_ins:
            if len(self._stand_ins) == len(_STAND_INS):
                raise TemplateError("the conversation spells control tokens in more ways than can be kept apart")
            self._stand_ins[letter] = _STAND_INS[len(self._stand_ins)]
        return self._stand_ins[letter]


def _overlap(left: str, right: str) -> int:
    """Return the length of the longest end of `left` that begins `right`."""
    for length in range(min(len(left), len(right)), 0, -1):
        if left.endswith(right[:length]):
            return length
    return 0
