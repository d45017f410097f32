"""One turn of a conversation: what goes to the template, what the answer must keep to, how it is taken apart.

`ChatFormat` is what a model's template and vocabulary say, once a model; `Turn` is one answer. Knows tokens by their marks
only. Next hops: `describe.py`, `grammar.py`, `after_reasoning.py` before the answer, `splitter.py` while it comes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol

from ..choosing import Constraint
from ..config import SamplingParams
from ..errors import OptionError
from .after_reasoning import AfterReasoning
from .calls import Calls, make_call_id
from .describe import knows_tools, tell_of_tools
from .families import HERMES, Family, get_family, pick_family
from .reasoning import HasMarks, find_marks, is_opened
from .request import ToolRequest
from .splitter import Splitter

Message = Mapping[str, Any]


class _Tokenizer(HasMarks, Protocol):
    def token_bytes(self, token: int) -> bytes: ...
    def encode_inside(self, text: str) -> list[int]: ...
    def is_control(self, token: int) -> bool: ...


class ChatFormat:
    """How a model reasons and calls tools, read off its template's source and its vocabulary.

    reasoning: the marks around its reasoning, None if it has none. family: how it writes calls. knows_tools: its template
    shows tools to it; other models are told in words, and answer as Hermes does.
    """

    def __init__(self, source: str, tokenizer: _Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.reasoning = find_marks(source, tokenizer)
        self.knows_tools = knows_tools(source)
        self.family: Family = pick_family(source, tokenizer.find_token) if self.knows_tools else HERMES

    def use_family(self, name: str) -> None:
        """Read calls as this family writes them, whatever the template shows. Raises OptionError for an unknown name."""
        self.family = get_family(name)

    def begin(self, messages: Iterable[Message], request: ToolRequest) -> Turn:
        """Prepare a turn."""
        return Turn(self, self._tokenizer, list(messages), request)


class Turn:
    """One answer to come.

    messages, tools: for the template. `constrain` comes next, with the prompt that it rendered.
    """

    def __init__(self, form: ChatFormat, tokenizer: _Tokenizer, messages: list[Message], request: ToolRequest) -> None:
        self._form, self._tokenizer, self._request = form, tokenizer, request
        self._prompt_ids: list[int] = []
        self._is_opened = False
        # A model that only follows a description repeats its call until it is stopped.
        self._max_calls = form.family.max_calls if request.is_parallel and form.knows_tools else 1
        self._controls = self._find_controls()
        self.messages: Sequence[Message] = messages if form.knows_tools else tell_of_tools(messages, request)
        self.tools = [tool.description for tool in request.tools] if form.knows_tools and request.tools else None

    def constrain(self, params: SamplingParams, prompt_ids: list[int]) -> SamplingParams:
        """Take the prompt and return the parameters with the form that calls must have.

        Raises OptionError if calls and the answer are both to have a form.
        """
        self._prompt_ids = prompt_ids
        if self._form.reasoning is not None:
            self._is_opened = is_opened(self._form.reasoning, prompt_ids, self._tokenizer)
        grammar = None
        if self._request.tools:
            from .grammar import make_grammar

            grammar = make_grammar(self._form.family, self._request, self._max_calls, self._controls)
        if grammar is None:
            return params
        if params.is_structured:
            raise OptionError(
                "tools that are required or strict give the answer its form; leave out json, schema, regex, grammar and choices"
            )
        return dataclasses.replace(params, grammar=grammar)

    def wait_for_answer(self, constraint: Constraint, eog_ids: Collection[int]) -> Constraint:
        """Return a constraint that leaves the model's reasoning alone."""
        marks = self._form.reasoning
        if marks is None:
            return constraint
        open_id = self._tokenizer.find_token(marks.controls[0])
        if not self._is_opened and open_id is None:
            return constraint
        gaps = [self._tokenizer.encode_inside(gap) for gap in ("\n", "\n\n")]
        return AfterReasoning(
            constraint,
            self._is_opened,
            open_id,
            marks.close.encode(),
            self.token_bytes,
            [ids[0] for ids in gaps if len(ids) == 1],
            eog_ids,
        )

    def make_splitter(self) -> tuple[Splitter, Calls]:
        """Return what takes the answer apart, and where its calls go."""
        family, request = self._form.family, self._request

        def make_id(index: int) -> str:
            return make_call_id(self._prompt_ids, index, family.id_prefix)

        offered = {tool.name: tool.parameters for tool in request.tools}
        calls = Calls(offered, make_id, self._max_calls)
        expected = family if offered else None
        return Splitter(self._form.reasoning, self._is_opened, expected, calls), calls

    def token_bytes(self, token: int) -> bytes:
        """Return the bytes a token adds to the text; control tokens that are marks are spelled out."""
        return self._spelled.get(token) or self._tokenizer.token_bytes(token)

    def _find_controls(self) -> dict[str, int]:
        """The marks that are control tokens, whose texts nobody else sees."""
        texts = list(self._form.reasoning.controls) if self._form.reasoning is not None else []
        if self._request.tools:
            texts += self._form.family.controls
        found = {text: self._tokenizer.find_token(text) for text in texts}
        controls = {
            text: token for text, token in found.items() if token is not None and self._tokenizer.is_control(token)
        }
        self._spelled = {token: text.encode() for text, token in controls.items()}
        return controls
