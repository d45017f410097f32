"""What a person types: load a model, generate, stream, chat. Text in, text out.

The only place where ids and text meet. Knows no file format, no network and no kernel. Next hops: `loader.py` makes the
parts, `engine.py` runs sequences, `tokenizer/stream.py` turns ids into text.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Sequence as ListOf
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from .choosing import Chooser
from .completion import Completion
from .config import DEFAULT_CACHE_TYPE, DEFAULT_SINKS, EngineConfig, SamplingParams
from .errors import EdgeLLMError, OptionError, UnsupportedError
from .request import check_bias, merge_params, seeds, whole_numbers
from .sequence import Sequence
from .shared_engine import SharedEngine
from .stream import Stream

if TYPE_CHECKING:
    from .chat_stream import ChatStream
    from .loader import LoadedModel
    from .tokenizer.stream import HasTokenBytes, TextStream
    from .tool_calls import ChatFormat, ToolLike, Turn

Progress = Callable[[str, int, int], None]
Form = TypeVar("Form")


class LLM:
    """A loaded model. Use it in a `with` block or call `close`; any number of threads may use it at once.

    Every answer depends on its prompt and parameters only, not on what else is generated at the same time.

    loaded: the parts that the loader made. load_s: seconds that took. max_context: tokens a prompt and its answer may
    have together, None for no end. window: last tokens that stay in sight, if not all. vocab_size: ids are 0 to
    vocab_size - 1. eog_ids: ids that end an answer.
    """

    def __init__(self, loaded: LoadedModel) -> None:
        self.loaded = loaded
        self._shared = SharedEngine(loaded.engine)
        self._is_closed = False
        self.tokenizer = loaded.tokenizer
        self.load_s = loaded.load_s
        self.max_context = loaded.engine.max_context
        self.window = loaded.engine.config.window
        self.vocab_size = loaded.engine.vocab_size
        self.eog_ids = loaded.engine.eog_ids

    @classmethod
    def load(
        cls,
        model: str | os.PathLike[str] = "smollm2",
        *,
        threads: int | None = None,
        max_context: int | None = None,
        prefill_chunk: int = 512,
        max_sequences: int = 1,
        weights: str = "auto",
        precise: bool = False,
        cache_type_k: str = DEFAULT_CACHE_TYPE,
        cache_type_v: str = DEFAULT_CACHE_TYPE,
        cache_memory: int | None = None,
        disk_cache: int = 0,
        window: int | None = None,
        sinks: int = DEFAULT_SINKS,
        on_full: str = "stop",
        progress: Progress | None = None,
    ) -> LLM:
        """Load a model: a path, an alias, or `owner/repo[:file-or-quant]` on Hugging Face; EngineConfig has the rest.

        progress: called with (stage, done, total) while files are fetched and kernels compiled.
        Raises OptionError, DownloadError, ModelFileError, UnsupportedError or ResourceError.
        """
        config = EngineConfig(
            threads=threads,
            max_context=max_context,
            prefill_chunk=prefill_chunk,
            max_sequences=max_sequences,
            weights=weights,
            precise=precise,
            cache_type_k=cache_type_k,
            cache_type_v=cache_type_v,
            cache_memory=cache_memory,
            disk_cache=disk_cache,
            window=window,
            sinks=sinks,
            on_full=on_full,
        )
        from . import hub, loader

        return cls(loader.load_model(hub.resolve(os.fspath(model), progress), config, progress))

    @overload
    def generate(
        self, prompt: str | Iterable[int], params: SamplingParams | None = None, *, schema: type[Form], **overrides: Any
    ) -> Form: ...
    @overload
    def generate(
        self, prompt: str | Iterable[int], params: SamplingParams | None = None, **overrides: Any
    ) -> Completion: ...
    def generate(self, prompt: str | Iterable[int], params: SamplingParams | None = None, **overrides: Any) -> Any:
        """Continue a prompt, text or token ids, as it is. `overrides` are fields of SamplingParams.

        Text never becomes a control token; the model's begin token is put before it if the model wants one.
        Where schema is a Pydantic model class, its instance is returned; `stream` has the completion too.
        Raises OptionError for bad parameters or ids, ContextError for a prompt that leaves no room, AnswerError if there
        is no instance, as when the answer was cut.
        """
        return _exhaust(self.stream(prompt, params, **overrides))

    def stream(self, prompt: str | Iterable[int], params: SamplingParams | None = None, **overrides: Any) -> Stream:
        """Like `generate`, piece by piece. Work begins, and errors are raised, here; tokens are made on iteration."""
        created_s = time.perf_counter()
        ids = self._prompt_ids(prompt)
        return Stream(self, self._make_sequence(ids, merge_params(params, overrides), created_s))

    def generate_many(
        self, prompt: str | Iterable[int], n: int, params: SamplingParams | None = None, **overrides: Any
    ) -> list[Completion]:
        """Like `generate`, n answers to one prompt, which is read once; their seeds are seed, seed + 1, ...

        As many at once as max_sequences allows; each is what `generate` gives with its seed.
        """
        created_s = time.perf_counter()
        return self._complete_many(self._prompt_ids(prompt), n, merge_params(params, overrides), created_s)

    @overload
    def chat(
        self,
        messages: Iterable[Mapping[str, Any]],
        params: SamplingParams | None = None,
        *,
        schema: type[Form],
        **overrides: Any,
    ) -> Form: ...
    @overload
    def chat(
        self,
        messages: Iterable[Mapping[str, Any]],
        params: SamplingParams | None = None,
        *,
        tools: Iterable[ToolLike] | None = None,
        tool_choice: str | Mapping[str, Any] = "auto",
        parallel_tool_calls: bool = True,
        documents: ListOf[Mapping[str, Any]] | None = None,
        template_args: Mapping[str, Any] | None = None,
        **overrides: Any,
    ) -> Completion: ...
    def chat(self, messages: Iterable[Mapping[str, Any]], params: SamplingParams | None = None, **options: Any) -> Any:
        """Answer a conversation, a list of {"role": ..., "content": ...}, through the model's own chat template.

        tools: functions the model may want called, in OpenAI's shape or Python's own; its calls are in the completion's
        tool_calls. tool_choice: "auto", "none", "required", or one by name, as OpenAI has it. parallel_tool_calls: several
        in one answer. documents: texts to answer from. template_args: names that this model's template knows, as
        enable_thinking. Reasoning is taken out of the text, into `reasoning`.
        Raises UnsupportedError if the model has no template, TemplateError if it refuses the conversation, and as `generate`.
        """
        return _exhaust(self.chat_stream(messages, params, **options))

    def chat_stream(
        self,
        messages: Iterable[Mapping[str, Any]],
        params: SamplingParams | None = None,
        *,
        tools: Iterable[ToolLike] | None = None,
        tool_choice: str | Mapping[str, Any] = "auto",
        parallel_tool_calls: bool = True,
        documents: ListOf[Mapping[str, Any]] | None = None,
        template_args: Mapping[str, Any] | None = None,
        **overrides: Any,
    ) -> ChatStream:
        """Like `chat`, piece by piece."""
        created_s = time.perf_counter()
        ids, merged, turn = self._prepare_chat(
            messages,
            params,
            tools=tools,
            tool_choice=tool_choice,
            parallel_tool_calls=parallel_tool_calls,
            documents=documents,
            template_args=template_args,
            **overrides,
        )
        return self._begin_chat(self._make_sequence(ids, merged, created_s, turn), turn)

    def chat_many(
        self, messages: Iterable[Mapping[str, Any]], n: int, params: SamplingParams | None = None, **options: Any
    ) -> list[Completion]:
        """Like `chat`, n answers to one conversation, as `generate_many` gives them."""
        created_s = time.perf_counter()
        ids, merged, turn = self._prepare_chat(messages, params, **options)
        return self._complete_many(ids, n, merged, created_s, turn)

    @cached_property
    def chat_format(self) -> ChatFormat:
        """How this model reasons and calls tools; `use_family` overrides what its template shows."""
        from .tool_calls import ChatFormat

        template = self.loaded.template
        return ChatFormat("" if template is None else "\n".join(template.sources.values()), self.tokenizer)

    def tokenize(self, text: str, special: bool = False) -> list[int]:
        """Return the ids of a text; with `special`, control tokens spelled in it are recognised."""
        return list(self.tokenizer.encode(text, special=special))

    def detokenize(self, token_ids: Iterable[int], special: bool = False) -> str:
        """Return the text of ids; with `special`, control tokens are spelled out."""
        ids = whole_numbers(token_ids)
        for token_id in ids:
            if not 0 <= token_id < self.vocab_size:
                raise OptionError(f"token id {token_id} is out of range; this model's are 0 to {self.vocab_size - 1}")
        return self.tokenizer.decode(ids, special=special)

    def logits(self, token_ids: Iterable[int]) -> NDArray[np.float32]:
        """Return f32[len(token_ids), vocab_size]: row i is what the model expects after ids 0 to i.

        Raises OptionError if there are none or one is out of range, ContextError if they exceed max_context.
        """
        sequence = Sequence(whole_numbers(token_ids), keep_logits=True)
        self._shared.add(sequence)
        try:
            self._shared.wait(sequence, 0)
        finally:
            self._shared.cancel(sequence)
        if sequence.error is not None:
            raise sequence.error
        assert sequence.logits is not None
        return sequence.logits

    def save_state(self, path: str | os.PathLike[str]) -> int:
        """Write to a file what the cache holds of earlier prompts and answers, for `load_state`. -> their tokens.

        After a chat that is the conversation: who loads it goes on without reading it again. Anyone who can read the file can
        read the texts out of it, so only its owner may. A file of that name is replaced.
        Raises ResourceError if the file cannot be written.
        """
        from . import keeping

        self._require_open()
        return keeping.save_state(self.loaded, self._shared, path)

    def load_state(self, path: str | os.PathLike[str]) -> int:
        """Put back what `save_state` wrote, as far as the cache has memory for it. -> the tokens that are there now.

        Prompts that begin like a saved text start where it ends; answers are the same bits as without. The model and the
        settings of its cache must be those of the saved state; threads, weights' layout and max_context may differ.
        Raises StateError where the file is missing, damaged or of something else: then nothing of it is used.
        """
        from . import keeping

        self._require_open()
        return keeping.load_state(self.loaded, self._shared, path)

    def close(self) -> None:
        """Stop what is running, end the threads, free the memory; harmless when repeated."""
        if not self._is_closed:
            self._is_closed = True
            self._shared.close()
            self.loaded.close()

    def __enter__(self) -> LLM:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def _make_sequence(
        self,
        ids: list[int],
        params: SamplingParams,
        created_s: float,
        turn: Turn | None = None,
        after: Sequence | None = None,
    ) -> Sequence:
        return Sequence(ids, params, chooser=self._make_chooser(params, turn), after=after, created_s=created_s)

    def _complete_many(
        self, ids: list[int], n: int, params: SamplingParams, created_s: float, turn: Turn | None = None
    ) -> list[Completion]:
        """Answer n times; all but the first wait until the prompt is in the cache."""
        first: Sequence | None = None
        streams: list[Stream] = []
        for seed in seeds(params.seed, n):
            sequence = self._make_sequence(ids, dataclasses.replace(params, seed=seed), created_s, turn, first)
            first = first or sequence
            streams.append(Stream(self, sequence) if turn is None else self._begin_chat(sequence, turn))
        return [_exhaust(stream) for stream in streams]

    def _prepare_chat(
        self,
        messages: Iterable[Mapping[str, Any]],
        params: SamplingParams | None,
        tools: Iterable[ToolLike] | None = None,
        tool_choice: str | Mapping[str, Any] = "auto",
        parallel_tool_calls: bool = True,
        documents: ListOf[Mapping[str, Any]] | None = None,
        template_args: Mapping[str, Any] | None = None,
        **overrides: Any,
    ) -> tuple[list[int], SamplingParams, Turn]:
        """Check a request and render its prompt."""
        from .tool_calls import check_request

        self._require_open()
        template = self.loaded.template
        if template is None:
            raise UnsupportedError("this model has no chat template; continue plain text with generate (run --raw)")
        merged = merge_params(params, overrides)
        turn = self.chat_format.begin(messages, check_request(tools, tool_choice, parallel_tool_calls))
        ids = template.render_ids(turn.messages, tools=turn.tools, documents=documents, template_args=template_args)
        return ids, turn.constrain(merged, ids), turn

    def _begin_chat(self, sequence: Sequence, turn: Turn) -> ChatStream:
        from .chat_stream import ChatStream

        return ChatStream(self, sequence, turn)

    def _make_chooser(self, params: SamplingParams, turn: Turn | None = None) -> Chooser:
        """What chooses the ids: with a constraint where the answer must have a form, a watcher where texts are banned."""
        check_bias(params, self.vocab_size)
        constraint = None
        if params.is_structured:
            from .structured import make_constraint

            constraint = make_constraint(params, self.tokenizer, self.eog_ids)
            if turn is not None:
                constraint = turn.wait_for_answer(constraint, self.eog_ids)
        watcher = None
        if params.banned:
            from .banned import BannedTexts

            watcher = BannedTexts(params.banned, self.tokenizer.token_bytes)
        return Chooser(params, constraint, watcher, self.tokenizer.token_bytes)

    def _prompt_ids(self, prompt: str | Iterable[int]) -> list[int]:
        self._require_open()
        bos_id = self.tokenizer.bos_id
        if isinstance(prompt, str):
            ids = list(self.tokenizer.encode(prompt, add_bos=self.tokenizer.add_bos))
        else:
            ids = whole_numbers(prompt)
        return ids if ids or bos_id is None else [bos_id]

    def _make_text_stream(self, stop: tuple[str, ...], tokens: HasTokenBytes | None = None) -> TextStream:
        from .tokenizer.stream import TextStream

        return TextStream(tokens if tokens is not None else self.tokenizer, stop)

    def _require_open(self) -> None:
        if self._is_closed:
            raise EdgeLLMError("this model is closed; load it again")


def _exhaust(stream: Stream) -> Any:
    """Return what a stream ends in: its completion, or an instance of the class that was given as schema."""
    for _ in stream:
        pass
    assert stream.completion is not None
    schema = stream.params.schema
    if schema is None:
        return stream.completion
    from .structured import result_of

    return result_of(stream.completion, schema)
