"""What a person types: load a model, generate, stream, chat. Text in, text out.

The only place where ids and text meet. Knows no file format, no network and no kernel. Next hops: `loader.py` makes the
parts, `engine.py` runs sequences, `tokenizer/stream.py` turns ids into text.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Sequence as ListOf
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from . import asking
from .completion import Completion
from .config import DEFAULT_CACHE_TYPE, DEFAULT_SINKS, EngineConfig, SamplingParams
from .errors import EdgeLLMError, OptionError
from .request import whole_numbers
from .sequence import Sequence
from .shared_engine import SharedEngine
from .stream import Stream

if TYPE_CHECKING:
    from concurrent.futures import Future

    from .chat_stream import ChatStream
    from .embedding import Head, Job
    from .estimate import Estimate
    from .loader import LoadedModel
    from .reranking import Ranking
    from .tokenizer.stream import HasTokenBytes, TextStream
    from .tool_calls import ChatFormat, ToolLike

Progress = Callable[[str, int, int], None]
Form = TypeVar("Form")


class LLM:
    """A loaded model. Use it in a `with` block or call `close`; any number of threads may use it at once.

    Every answer depends on its prompt and parameters only, not on what else is generated at the same time.

    loaded: the parts that the loader made. load_s: seconds that took. max_context: tokens a prompt and its answer may
    have together, None for no end. window: last tokens that stay in sight, if not all. vocab_size: ids are 0 to
    vocab_size - 1. eog_ids: ids that end an answer. adapters: LoRA adapters by name, each with the scale that a request gets
    which does not say `lora={name: scale}`.
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
        self.adapters: Mapping[str, float] = dict(loaded.adapters.scales)

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
        spec: str = "auto",
        draft_model: str | os.PathLike[str] | None = None,
        spec_corpus: bool = False,
        lora: ListOf[str | os.PathLike[str] | tuple[str | os.PathLike[str], float]] = (),
        progress: Progress | None = None,
    ) -> LLM:
        """Load a model: a path, an alias, or `owner/repo[:file-or-quant]` on Hugging Face; EngineConfig has the rest.

        progress: called with (stage, done, total) while files are fetched and kernels compiled.
        Raises OptionError, DownloadError, ModelFileError, UnsupportedError or ResourceError.
        """
        from . import hub, loader

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
            spec=spec,
            spec_corpus=spec_corpus,
            lora=tuple(lora),  # type: ignore[arg-type]  # paths alone are welcome: EngineConfig adds their scales
            draft_model=None if draft_model is None else str(hub.resolve(os.fspath(draft_model), progress)),
        )
        return cls(loader.load_model(hub.resolve(os.fspath(model), progress), config, progress))

    @classmethod
    def load_in_background(
        cls,
        model: str | os.PathLike[str] = "smollm2",
        *,
        on_ready: Callable[[LLM], None] | None = None,
        progress: Progress | None = None,
        **options: Any,
    ) -> Future[LLM]:
        """Load in a thread of its own. -> a future whose `result()` is the LLM, or raises what `load` would.

        on_ready: called in that thread with the LLM. `cancel()` gives the model up: what is under way ends at its next step.
        """
        from .background import load_in_background

        return load_in_background(lambda told: cls.load(model, progress=told, **options), progress, on_ready)

    @staticmethod
    def estimate(model: str | os.PathLike[str], **options: Any) -> Estimate:
        """Say what a model would need and how fast it would be here, from its header: nothing is loaded or compiled.

        model: the path of a file, or what `load` takes, if it is here already. options: those of `load`.
        Raises DownloadError if it is not here, ModelFileError or UnsupportedError if it cannot be run.
        """
        from .estimate import estimate

        return estimate(os.fspath(model), EngineConfig(**options))

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

        on_prefill=function: called with (done, total) tokens of the prompt while they are computed, in this thread.
        Text never becomes a control token; the model's begin token is put before it if the model wants one.
        Where schema is a Pydantic model class, its instance is returned; `stream` has the completion too.
        Raises OptionError for bad parameters or ids, ContextError for a prompt that leaves no room, AnswerError if there
        is no instance, as when the answer was cut.
        """
        return self.stream(prompt, params, **overrides).result()

    def stream(self, prompt: str | Iterable[int], params: SamplingParams | None = None, **overrides: Any) -> Stream:
        """Like `generate`, piece by piece. Work begins, and errors are raised, here.

        Tokens are made meanwhile, up to some ahead of what has been read.
        """
        return asking.begin(self, asking.ask(self, prompt, params, overrides))

    def generate_many(
        self, prompt: str | Iterable[int], n: int, params: SamplingParams | None = None, **overrides: Any
    ) -> list[Completion]:
        """Like `generate`, n answers to one prompt, which is read once; their seeds are seed, seed + 1, ...

        As many at once as max_sequences allows; each is what `generate` gives with its seed.
        """
        question = asking.ask(self, prompt, params, overrides)
        return [stream.result() for stream in asking.begin_many(self, question, n)]

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
        return self.chat_stream(messages, params, **options).result()

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
        chat = {
            "tools": tools,
            "tool_choice": tool_choice,
            "parallel_tool_calls": parallel_tool_calls,
            "documents": documents,
            "template_args": template_args,
        }
        return asking.begin_chat(self, asking.ask_chat(self, messages, params, {**overrides, **chat}))

    def chat_many(
        self, messages: Iterable[Mapping[str, Any]], n: int, params: SamplingParams | None = None, **options: Any
    ) -> list[Completion]:
        """Like `chat`, n answers to one conversation, as `generate_many` gives them."""
        question = asking.ask_chat(self, messages, params, options)
        return [stream.result() for stream in asking.begin_many(self, question, n)]

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

    def logits(self, token_ids: Iterable[int], *, lora: Mapping[str, float] | None = None) -> NDArray[np.float32]:
        """Return f32[len(token_ids), vocab_size]: row i is what the model expects after ids 0 to i. lora: as in SamplingParams.

        Raises OptionError if there are none or one is out of range, ContextError if they exceed max_context.
        """
        adapters = self.loaded.adapters.choose(lora)
        sequence = Sequence(whole_numbers(token_ids), keep_logits=True, adapters=adapters)
        self._shared.add(sequence)
        try:
            self._shared.wait(sequence, 0)
        finally:
            self._shared.cancel(sequence)
        if sequence.error is not None:
            raise sequence.error
        assert sequence.logits is not None
        return sequence.logits

    def embed(
        self, texts: str | Iterable[str | Iterable[int]], *, pooling: str | None = None, normalize: bool = True
    ) -> NDArray[np.float32]:
        """Return f32[N, size], a vector for each text (or list of ids): what the model makes of it. All texts are one batch.

        pooling: "mean" of the hidden states of all tokens after the final norm, those of the first token ("cls") or of the
        "last"; None: as the file says, mean if it does not. normalize: to length 1. Write what the model wants before a text
        ("query: ", an instruction) into it.
        Raises OptionError, and ContextError for a text of more than max_context tokens.
        """
        return self._embed(texts, pooling, normalize)

    def _embed(self, texts: Any, pooling: str | None = None, normalize: bool = True, job: Job | None = None) -> Any:
        from .embedding import embed

        return embed(self._shared, self._head, asking.embed_texts(self, texts), pooling, normalize, job)

    def embed_tokens(
        self, texts: str | Iterable[str | Iterable[int]], *, normalize: bool = False
    ) -> list[NDArray[np.float32]]:
        """Return f32[n, hidden_size] for each text: the hidden state of each of its n tokens. Raises as `embed`."""
        from .embedding import embed_tokens

        return embed_tokens(self._shared, asking.embed_texts(self, texts), normalize)

    def rerank(self, query: str, documents: Iterable[str]) -> Ranking:
        """Say how well each document fits the query: `scores` in their order, `order` with the best first. All are one batch.

        Raises UnsupportedError for a model that gives no scores, ContextError for a pair that is too long.
        """
        from .embedding import score
        from .reranking import Ranking, write_pair

        self._require_open()
        self._head.require_scores()
        metadata = self.loaded.file.metadata
        adapters = self.loaded.adapters.choose(None)
        pairs = [write_pair(self.tokenizer, metadata, query, text)._replace(adapters=adapters) for text in documents]
        return Ranking(score(self._shared, self._head, pairs))

    @cached_property
    def _head(self) -> Head:
        from .embedding import Head

        program = self.loaded.program
        self._require_open()
        return Head(program.pooling, self.loaded.file, program.hidden.width)

    def save_state(self, path: str | os.PathLike[str]) -> int:
        """Write to a file what the cache holds of earlier prompts and answers, for `load_state`. -> their tokens.

        After a chat that is the conversation: who loads it goes on without reading it again. Anyone who can read the file can
        read the texts out of it, so only its owner may. A file of that name is replaced.
        Raises ResourceError if the file cannot be written, and StateError for models with layers that keep more than keys and
        values (convolutions, recurrent ones): what those know of a text stays in this process, and in no disk cache either.
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
            self._shared.close(self.loaded.close)

    def __enter__(self) -> LLM:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def _make_text_stream(self, stop: tuple[str, ...], tokens: HasTokenBytes | None = None) -> TextStream:
        from .tokenizer.stream import TextStream

        return TextStream(tokens if tokens is not None else self.tokenizer, stop)

    def _require_open(self) -> None:
        if self._is_closed:
            raise EdgeLLMError("this model is closed; load it again")
