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
from .tokenizer.special import repair

if TYPE_CHECKING:
    from jinja2 import Template

Message = Mapping[str, Any]

MAX_REPEAT = 1 << 20
MAX_POWER = 64

# Where stand-ins for letters of user text come from: private use, more of them than there are letters in token names.
_STAND_INS = range(0x100000, 0x10FFFE)


class ChatTemplate:
    """A model's chat template. Raises TemplateError, in one line, for everything that goes wrong while rendering."""

    def __init__(self, source: str, tokenizer: Tokenizer, now: Callable[[], datetime] = datetime.now) -> None:
        """Keep the template; it is compiled when first used. now: the clock of `strftime_now`."""
        self.source = source
        self._tokenizer = tokenizer
        self._now = now

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any], tokenizer: Tokenizer) -> ChatTemplate:
        """Take `tokenizer.chat_template`. Where the file has none, rendering raises: a guessed one would mislead."""
        source = metadata.get("tokenizer.chat_template")
        return cls(source if isinstance(source, str) else "", tokenizer)

    def render_ids(
        self,
        messages: Sequence[Message],
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        template_args: Mapping[str, Any] | None = None,
    ) -> list[int]:
        """Return the prompt's ids: BOS exactly once where the model wants it, no EOS, user text without control tokens.

        messages: mappings with "role" and "content". add_generation_prompt: end where the assistant's answer begins.
        tools: OpenAI's descriptions of functions. documents: what the answer may rest on. template_args: names that this
        model's template knows, as enable_thinking.
        """
        given = {"tools": tools, "documents": documents, **(template_args or {})}
        text = self.render(messages, add_generation_prompt, **given)
        texts = list(_strings([list(messages), tools, documents]))
        if not any(self._guard.places(value) for value in texts):
            return self._tokenizer.encode_chat(text)
        marks = _Marks(self._guard, taken=set(self.source).union(*texts))
        marked = self._render(marks.mark(list(messages)), add_generation_prompt, marks.mark(given))
        return self._tokenizer.encode_chat(*marks.unmark(marked))

    def render(self, messages: Sequence[Message], add_generation_prompt: bool = True, **template_args: Any) -> str:
        """Return the prompt as text, control tokens by their names: to be read, not to be tokenised."""
        if not self.source.strip():
            raise TemplateError(
                "the model file has no chat template: it continues text but was not made to chat; use it without one"
            )
        _check(messages)
        return self._render([dict(message) for message in messages], add_generation_prompt, template_args)

    def _render(self, messages: list[Any], add_generation_prompt: bool, given: Mapping[str, Any]) -> str:
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
                {"tools": None, "documents": None, **names, **given},
                messages=messages,
                add_generation_prompt=add_generation_prompt,
            )
        except TemplateError:
            raise
        except Exception as error:  # the template is a stranger's: it can raise anything
            raise TemplateError(_describe(error)) from None
        return text

    @cached_property
    def _guard(self) -> _Guard:
        return _Guard(self._tokenizer)

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

    class Sandbox(ImmutableSandboxedEnvironment):
        """Jinja bounds `range` but not multiplication: one expression could fill the memory."""

        intercepted_binops = frozenset(("*", "**"))

        def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
            for text, count in ((left, right), (right, left)):
                if hasattr(text, "__len__") and isinstance(count, int) and len(text) * count > MAX_REPEAT:
                    raise OverflowError(f"a text repeated to more than {MAX_REPEAT} characters")
            if operator == "**" and (abs(left) > MAX_POWER or abs(right) > MAX_POWER):
                raise OverflowError(f"a power of numbers above {MAX_POWER}")
            return super().call_binop(context, operator, left, right)

    environment = Sandbox(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
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
    """Knows which places in user text could become part of a control token.

    Those are spellings of control tokens, and ends and beginnings that the template's own text could complete.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._texts = tokenizer.guarded_texts
        self._longest = max(map(len, self._texts), default=0)
        self._first_letters = {text[0] for text in self._texts}
        self._last_letters = {text[-1] for text in self._texts}

    def places(self, text: str) -> set[int]:
        """Return the places to mark: one in every spelling is enough."""
        places = set()
        at = 0
        while (found := self._tokenizer.find_guarded(text, at)) is not None:
            places.add(found[0])
            at = found[0] + 1
        tail, head = text[-self._longest :], text[: self._longest]
        if not self._first_letters.isdisjoint(tail):
            places |= {len(text) - n for n in range(1, len(tail) + 1) if tail[-n:] in self._beginnings}
        if not self._last_letters.isdisjoint(head):
            places |= {n - 1 for n in range(1, len(head) + 1) if head[:n] in self._ends}
        return places

    @cached_property
    def _beginnings(self) -> set[str]:
        return {text[:n] for text in self._texts for n in range(1, len(text))}

    @cached_property
    def _ends(self) -> set[str]:
        return {text[n:] for text in self._texts for n in range(1, len(text))}


class _Marks:
    """Replaces marked letters of messages by stand-ins, which a template that trims, cuts or joins carries along."""

    def __init__(self, guard: _Guard, taken: set[str]) -> None:
        self._guard = guard
        self._free = (c for c in map(chr, _STAND_INS) if c not in taken)
        self._stand_ins: dict[str, str] = {}

    def mark(self, value: Any) -> Any:
        """Return a copy of messages with stand-ins in their texts."""
        if isinstance(value, str):
            letters = list(value)
            for place in self._guard.places(value):
                letters[place] = self._stand_in(value[place])
            return "".join(letters)
        if isinstance(value, Mapping):
            return {key: self.mark(item) for key, item in value.items()}
        return [self.mark(item) for item in value] if isinstance(value, (list, tuple)) else value

    def unmark(self, text: str) -> tuple[str, list[int]]:
        """Return the rendered text with its real letters, and the sorted places that were marked."""
        text = repair(text)  # now, because it moves places
        real = {stand_in: letter for letter, stand_in in self._stand_ins.items()}
        places = [i for i, letter in enumerate(text) if letter in real]
        return "".join([real.get(letter, letter) for letter in text]), places

    def _stand_in(self, letter: str) -> str:
        if letter not in self._stand_ins:
            self._stand_ins[letter] = next(self._free)
        return self._stand_ins[letter]
