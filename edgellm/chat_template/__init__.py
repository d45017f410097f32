"""Render a conversation with the model file's own Jinja template, in a sandbox, into token ids.

A template comes from a stranger and so does the text in the messages. The template can run no code and is stopped where
it runs on; the messages can write no control token: only the template's own text becomes one. Knows the order of the
steps; ids come from `tokenizer`. `messages.py` reads conversations, `forms.py` finds what a template reads, `adapt.py`
changes what it refuses, `marks.py` keeps users' text apart, `sandbox.py` renders, `families.py` helps files without one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ..errors import TemplateError
from ..tokenizer import Tokenizer
from . import adapt, families, messages
from .forms import Forms, find
from .marks import ROLES, Guard, Marks, texts_in
from .messages import Conversation, Message
from .meter import Limits, Meter, OverLimit, weigh

if TYPE_CHECKING:
    from jinja2 import Template

__all__ = ["ChatTemplate", "Message", "Prompt"]

_KEY = "tokenizer.chat_template"
_OWN_NAMES = frozenset(("messages", "tools", "documents", "add_generation_prompt"))
_MAX_INPUT = 1 << 40  # units: conversations are weighed, not limited; `llm.py` refuses what exceeds the context
_PROBE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Prompt:
    """A rendered conversation. text: control tokens by their names; adaptations: what was changed, in words."""

    token_ids: list[int]
    text: str
    adaptations: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Request:
    """What a template is given beside the messages."""

    given: dict[str, Any]
    add_generation_prompt: bool
    continues: bool


class _Refused(TemplateError):
    """The template does not take this conversation; another form of it may do."""


class ChatTemplate:
    """A model's chat template. Raises TemplateError, in one line, for everything that goes wrong while rendering."""

    def __init__(
        self,
        source: str | Mapping[str, str],
        tokenizer: Tokenizer,
        now: Callable[[], datetime] = datetime.now,
        limits: Callable[[int, int], Limits] = Limits.for_input,
    ) -> None:
        """Keep the template; it is compiled when first used.

        source: the template, or several by name, as "default" and "tool_use". now: the clock of `strftime_now`.
        limits: from units of text and number of messages to what one render may use.
        """
        self.sources = {"default": source} if isinstance(source, str) else dict(source)
        self.source = self.sources.get("default", "")
        self.origin = "the model file"
        self._tokenizer = tokenizer
        self._now = now
        self._limits = limits
        self._compiled: dict[str, Template | Exception] = {}
        self._forms: dict[str, Forms] = {}
        self._lock = threading.Lock()

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any], tokenizer: Tokenizer) -> ChatTemplate:
        """Take the file's templates, or its family's. Where there is neither, rendering raises: a guess would mislead."""
        return cls.find(metadata, tokenizer) or cls("", tokenizer)

    @classmethod
    def find(cls, metadata: Mapping[str, Any], tokenizer: Tokenizer) -> ChatTemplate | None:
        """Take `tokenizer.chat_template` and `tokenizer.chat_template.NAME`, or a known family's, or return None."""
        named = {k[len(_KEY) + 1 :]: v for k, v in metadata.items() if k.startswith(_KEY + ".")}
        sources = {name: v for name, v in {**named, "default": metadata.get(_KEY)}.items() if isinstance(v, str)}
        sources = {name: source for name, source in sources.items() if source.strip()}
        if sources:
            return cls(sources, tokenizer)
        if (family := families.find(metadata, tokenizer)) is None:
            return None
        template = cls(family.source, tokenizer)
        template.origin = f"the known family {family.name}"
        return template

    def render_ids(
        self,
        messages: Sequence[Message],
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        template_args: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> list[int]:
        """Return the prompt's ids; the arguments are those of `prompt`."""
        return self.prompt(messages, add_generation_prompt, tools, documents, template_args, **options).token_ids

    def render(
        self,
        messages: Sequence[Message],
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        template_args: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> str:
        """Return the prompt as text, to be read, not to be tokenised; the arguments are those of `prompt`."""
        return self._render(messages, add_generation_prompt, tools, documents, template_args, **options)[0]

    def prompt(
        self,
        messages: Sequence[Message],
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        template_args: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Prompt:
        """Return the prompt: BOS exactly once where the model wants it, no EOS, user text without control tokens.

        messages: mappings with "role" and "content", OpenAI's forms. add_generation_prompt: end where the assistant's
        answer begins. tools: OpenAI's descriptions of functions. documents: what the answer may rest on. template_args:
        names that this model's template knows, as enable_thinking.
        Options: continue_final_message: end inside the last message, so that the answer continues it. name: one of
        several templates. adapt: False renders messages as given, without the rules of docs/templates.md.
        Raises TemplateError.
        """
        text, places, done = self._render(messages, add_generation_prompt, tools, documents, template_args, **options)
        return Prompt(self._tokenizer.encode_chat(text, places), text, done)

    def _render(
        self,
        messages_given: Sequence[Message],
        add_generation_prompt: bool,
        tools: Sequence[Mapping[str, Any]] | None,
        documents: Sequence[Mapping[str, Any]] | None,
        template_args: Mapping[str, Any] | None,
        continue_final_message: bool = False,
        name: str | None = None,
        adapt: bool = True,
    ) -> tuple[str, list[int], tuple[str, ...]]:
        source = self._choose(name, tools)
        if continue_final_message and add_generation_prompt:
            raise TemplateError("continue_final_message begins no new answer: give add_generation_prompt=False with it")
        conversation = messages.read(messages_given)
        given = {name: messages.plain(value, name) for name, value in (("tools", tools), ("documents", documents))}
        for argument, value in (template_args or {}).items():
            if argument in _OWN_NAMES:
                raise TemplateError(f"template_args may not hold {argument!r}, which has an argument of its own")
            given[argument] = messages.plain(value, f"template_args[{argument!r}]")
        request = _Request(given, add_generation_prompt, continue_final_message)
        if not adapt:
            return *self._write(source, conversation, request), ()
        return self._write_adapted(source, conversation, request)

    def _choose(self, name: str | None, tools: Sequence[Any] | None) -> str:
        """Return one of several templates as Transformers does: by name, else the one for tools, else the default."""
        known = ", ".join(sorted(self.sources))
        if name is not None:
            if name not in self.sources:
                raise TemplateError(f"the model file has no chat template named {name!r:.40}; it has {known}")
            return self.sources[name]
        if tools is not None and self.sources.get("tool_use", "").strip():
            return self.sources["tool_use"]
        if "default" not in self.sources:
            raise TemplateError(f"the model file has several chat templates and no default: name one of {known}")
        if not self.source.strip():
            raise TemplateError(
                "the model file has no chat template and is no chat model of a known family: it continues text but was "
                "not made to chat; use it without one"
            )
        return self.source

    def _write_adapted(
        self, source: str, conversation: Conversation, request: _Request
    ) -> tuple[str, list[int], tuple[str, ...]]:
        """Render in the forms that the template reads; where it refuses, after the rules of `adapt.py`."""
        forms = self._find_forms(source)
        try:
            return *self._write(source, forms.fit(conversation), request), ()
        except _Refused as error:
            refusal = error
        for changed, done in adapt.attempts(messages.with_text(conversation)):
            try:
                return *self._write(source, forms.fit(changed), request), done
            except _Refused:
                continue
            except TemplateError:
                break
        raise TemplateError(str(refusal))

    def _find_forms(self, source: str) -> Forms:
        def render(conversation: Conversation, tools: Sequence[Any] | None) -> str | None:
            request = _Request({"tools": tools, "documents": None}, False, False)
            for changed in _with_changes(conversation):
                try:
                    return self._write(source, changed, request, _PROBE_SECONDS)[0]
                except _Refused:
                    continue
                except TemplateError:
                    return None
            return None

        if source not in self._forms:
            self._forms[source] = find(render)
        return self._forms[source]

    def _write(
        self, source: str, conversation: Conversation, request: _Request, seconds: float | None = None
    ) -> tuple[str, list[int]]:
        """Return the text and the places in it that come from users."""
        marks = Marks(self._guard, set(source).union(*texts_in([conversation, request.given])))
        marked = marks.mark(conversation, inside=True, exempt=ROLES)
        end = marks.take()
        if request.continues:
            _put_end(marked, end)
        names = {**self._token_names, **marks.mark(request.given), "messages": marked}
        names["add_generation_prompt"] = request.add_generation_prompt
        limits = self._limits(weigh(list(names.values()), _MAX_INPUT), len(conversation))
        limits = limits if seconds is None else replace(limits, seconds=min(seconds, limits.seconds))
        text = self._run(source, names, Meter(limits, None if marks.is_empty else marks))
        if request.continues:
            text = _cut_at(text, end)
        return marks.unmark(text)

    def _run(self, source: str, names: Mapping[str, Any], meter: Meter) -> str:
        from jinja2.exceptions import UndefinedError

        from . import sandbox

        try:
            return sandbox.run(self._get_compiled(source, meter), names, meter)
        except sandbox.Refusal as error:
            what = _one_line(error)
            raise _Refused(f"the model's chat template refuses this conversation: {what}") from None
        except UndefinedError as error:
            raise _Refused(_describe(error)) from None
        except TemplateError as error:
            raise TemplateError(str(error)) from None
        except OverLimit as error:
            raise TemplateError(f"the model's chat template was stopped: {error}; use another model file") from None
        except Exception as error:  # the template is a stranger's: it can raise anything
            raise TemplateError(_describe(error)) from None

    def _get_compiled(self, source: str, meter: Meter) -> Template:
        """Return a template, compiled once; what is wrong with it is found once, too."""
        from . import sandbox

        with self._lock, sandbox.metered(meter):
            if source not in self._compiled:
                try:
                    self._compiled[source] = sandbox.compile_template(source, lambda: self._now())
                except OverLimit as error:
                    self._compiled[source] = error
                except Exception as error:
                    self._compiled[source] = TemplateError(_describe(error))
            compiled = self._compiled[source]
        if isinstance(compiled, Exception):
            raise compiled
        return compiled

    @cached_property
    def _token_names(self) -> dict[str, str]:
        ids = {
            "bos_token": self._tokenizer.bos_id,
            "eos_token": self._tokenizer.eos_id,
            "unk_token": self._tokenizer.unk_id,
            "pad_token": self._tokenizer.pad_id,
        }
        return {name: "" if token is None else self._tokenizer.token_text(token) for name, token in ids.items()}

    @cached_property
    def _guard(self) -> Guard:
        return Guard(self._tokenizer)


def _with_changes(conversation: Conversation) -> Iterator[Conversation]:
    yield conversation
    for changed, _ in adapt.attempts(conversation):
        yield changed


def _put_end(conversation: Conversation, end: str) -> None:
    """Write a letter that occurs nowhere else behind the last text; a space shows whether the template trims."""
    content = conversation[-1].get("content")
    parts = [p for p in content if isinstance(p, dict) and "text" in p] if isinstance(content, list) else []
    if isinstance(content, str):
        conversation[-1]["content"] = content + end + " "
    elif parts:
        parts[-1]["text"] += end + " "
    else:
        raise TemplateError("continue_final_message is set, but the last message has no text to continue")


def _cut_at(text: str, end: str) -> str:
    at = text.rfind(end)
    if at < 0:
        raise TemplateError("continue_final_message is set, but the model's chat template leaves the last message out")
    return text[:at] if text[at + 1 : at + 2] == " " else text[:at].rstrip()


def _one_line(text: object) -> str:
    return " ".join(str(text).split())[:300]


def _describe(error: BaseException) -> str:
    what = _one_line(error)
    line = getattr(error, "lineno", None)
    where = f" at line {line}" if isinstance(line, int) else ""
    return f"the model's chat template cannot be rendered{where}: {type(error).__name__}{': ' if what else ''}{what}"
