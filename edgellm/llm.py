"""What a person types: load a model, generate, stream, chat. Text in, text out.

The only place where ids and text meet. Knows no file format, no network and no kernel. Next hops: `loader.py` makes the
parts, `engine.py` runs sequences, `tokenizer/stream.py` turns ids into text.
"""

from __future__ import annotations

import dataclasses
import operator
import os
import time
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .config import DEFAULT_SINKS, EngineConfig, SamplingParams
from .engine import SharedEngine
from .errors import EdgeLLMError, OptionError, UnsupportedError
from .sequence import Sequence

if TYPE_CHECKING:
    from .loader import LoadedModel
    from .tokenizer.stream import TextStream

Progress = Callable[[str, int, int], None]


@dataclasses.dataclass(frozen=True, slots=True)
class Timings:
    """How long an answer took. Tokens per second are 0 where nothing was measured.

    load_s: loading the model. ttft_s: from the request to the first token, tokenizing and queueing included.
    prefill_tokens: tokens of the prompt. decode_tokens: tokens that decode steps made, which is all but the first.
    reused_tokens: tokens of the prompt that were in the cache already; prefill_tps counts the others.
    """

    load_s: float
    ttft_s: float
    prefill_tokens: int
    prefill_tps: float
    decode_tokens: int
    decode_tps: float
    reused_tokens: int = 0

    def as_dict(self) -> dict[str, float]:
        """The same names and values, for JSON."""
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True, slots=True)
class Completion:
    """An answer.

    text: without stop strings and control tokens. token_ids: every generated id, the end-of-generation id included.
    finish_reason: "stop" (the model ended, or a stop string came), "length" (max_tokens or the context is used up) or
    "cancelled".
    num_dropped_tokens: tokens of prompt and answer that were out of sight when the last one was chosen: 0 unless a
    window was asked for (window, on_full).
    """

    text: str
    token_ids: list[int]
    prompt_token_ids: list[int]
    finish_reason: str
    timings: Timings
    num_dropped_tokens: int = 0


class Stream:
    """An answer on its way: iterate over it for pieces of text, whole characters only.

    completion: the Completion once the answer has ended, None before. `close`, leaving a `with` block, an exception and
    garbage collection all cancel the generation and free its place in the cache; `completion` then is what there is.
    """

    def __init__(self, llm: LLM, sequence: Sequence) -> None:
        self.completion: Completion | None = None
        self._llm = llm
        self._sequence = sequence
        self._text = llm._make_text_stream(sequence.params.stop)
        self._pieces: list[str] = []
        self._num_seen = 0
        llm._shared.add(sequence)

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> str:
        """Return the next piece, never an empty one."""
        try:
            while self.completion is None:
                piece, finish_reason = self._advance()
                if piece:
                    self._pieces.append(piece)
                if finish_reason is not None:
                    self._complete(finish_reason)
                if piece:
                    return piece
        except BaseException:
            self.close()
            raise
        raise StopIteration

    def close(self) -> None:
        """Cancel the generation; harmless when it has ended."""
        self._llm._shared.cancel(self._sequence)
        if self.completion is None:
            self._complete("cancelled")

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def __del__(self) -> None:
        self._llm._shared.cancel(self._sequence)

    def _advance(self) -> tuple[str, str | None]:
        """Wait for the next id. Return the text that it completes, maybe none, and why the answer ends, if it does."""
        sequence = self._sequence
        self._llm._shared.wait(sequence, self._num_seen)
        if sequence.num_output <= self._num_seen:
            if sequence.error is not None:
                raise sequence.error
            return self._text.finish(), sequence.finish_reason
        token_id = sequence.token_ids[sequence.num_prompt + self._num_seen]
        self._num_seen += 1
        if token_id in self._llm.eog_ids and not sequence.params.ignore_eos:
            return "", None  # the model's own end mark is not text
        piece = self._text.push(token_id)
        if not self._text.stopped:
            return piece, None
        self._llm._shared.cancel(sequence)
        return piece, "stop"

    def _complete(self, finish_reason: str) -> None:
        # Other threads' steps may have made more ids than this stream has looked at: those are not part of the answer.
        sequence = self._sequence
        self.completion = Completion(
            text="".join(self._pieces),
            token_ids=sequence.output_ids[: self._num_seen],
            prompt_token_ids=sequence.prompt_ids,
            finish_reason=finish_reason,
            timings=_measure(sequence, self._num_seen, self._llm.load_s),
            num_dropped_tokens=self._llm._shared.engine.num_dropped(sequence.num_prompt + self._num_seen),
        )


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
        cache_type_k: str = "f16",
        cache_type_v: str = "f16",
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

    def generate(
        self, prompt: str | Iterable[int], params: SamplingParams | None = None, **overrides: Any
    ) -> Completion:
        """Continue a prompt, text or token ids, as it is. `overrides` are fields of SamplingParams.

        Text never becomes a control token; the model's begin token is put before it if the model wants one.
        Raises OptionError for bad parameters or ids, ContextError for a prompt that leaves no room.
        """
        return _exhaust(self.stream(prompt, params, **overrides))

    def stream(self, prompt: str | Iterable[int], params: SamplingParams | None = None, **overrides: Any) -> Stream:
        """Like `generate`, piece by piece. Work begins, and errors are raised, here; tokens are made on iteration."""
        created_s = time.perf_counter()
        return self._start(self._prompt_ids(prompt), params, overrides, created_s)

    def chat(
        self, messages: Iterable[Mapping[str, Any]], params: SamplingParams | None = None, **overrides: Any
    ) -> Completion:
        """Answer a conversation, a list of {"role": ..., "content": ...}, through the model's own chat template.

        Raises UnsupportedError if the model has none, TemplateError if it refuses the conversation, and as `generate`.
        """
        return _exhaust(self.chat_stream(messages, params, **overrides))

    def chat_stream(
        self, messages: Iterable[Mapping[str, Any]], params: SamplingParams | None = None, **overrides: Any
    ) -> Stream:
        """Like `chat`, piece by piece."""
        created_s = time.perf_counter()
        self._require_open()
        if self.loaded.template is None:
            raise UnsupportedError("this model has no chat template; continue plain text with generate (run --raw)")
        ids = self.loaded.template.render_ids(list(messages), add_generation_prompt=True)
        return self._start(ids, params, overrides, created_s)

    def tokenize(self, text: str, special: bool = False) -> list[int]:
        """Return the ids of a text; with `special`, control tokens spelled in it are recognised."""
        return list(self.tokenizer.encode(text, special=special))

    def detokenize(self, token_ids: Iterable[int], special: bool = False) -> str:
        """Return the text of ids; with `special`, control tokens are spelled out."""
        ids = _whole_numbers(token_ids)
        for token_id in ids:
            if not 0 <= token_id < self.vocab_size:
                raise OptionError(f"token id {token_id} is out of range; this model's are 0 to {self.vocab_size - 1}")
        return self.tokenizer.decode(ids, special=special)

    def logits(self, token_ids: Iterable[int]) -> NDArray[np.float32]:
        """Return f32[len(token_ids), vocab_size]: row i is what the model expects after ids 0 to i.

        Raises OptionError if there are none or one is out of range, ContextError if they exceed max_context.
        """
        sequence = Sequence(_whole_numbers(token_ids), keep_logits=True)
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

    def _start(
        self, ids: list[int], params: SamplingParams | None, overrides: Mapping[str, Any], created_s: float
    ) -> Stream:
        return Stream(self, Sequence(ids, _merge(params, overrides), created_s=created_s))

    def _prompt_ids(self, prompt: str | Iterable[int]) -> list[int]:
        self._require_open()
        bos_id = self.tokenizer.bos_id
        if isinstance(prompt, str):
            ids = list(self.tokenizer.encode(prompt, add_bos=self.tokenizer.add_bos))
        else:
            ids = _whole_numbers(prompt)
        return ids if ids or bos_id is None else [bos_id]

    def _make_text_stream(self, stop: tuple[str, ...]) -> TextStream:
        from .tokenizer.stream import TextStream

        return TextStream(self.tokenizer, stop)

    def _require_open(self) -> None:
        if self._is_closed:
            raise EdgeLLMError("this model is closed; load it again")


def _exhaust(stream: Stream) -> Completion:
    for _ in stream:
        pass
    assert stream.completion is not None
    return stream.completion


def _merge(params: SamplingParams | None, overrides: Mapping[str, Any]) -> SamplingParams:
    """Return `params` (the defaults if None) with some fields replaced, all checked."""
    if params is None:
        params = SamplingParams()
    elif not isinstance(params, SamplingParams):
        raise OptionError(f"params must be SamplingParams, not {type(params).__name__}; options can be given by name")
    known = [field.name for field in dataclasses.fields(SamplingParams)]
    unknown = [name for name in overrides if name not in known]
    if unknown:
        raise OptionError(f"unknown option {', '.join(unknown)}; the options are {', '.join(known)}")
    return dataclasses.replace(params, **overrides)


def _whole_numbers(token_ids: Iterable[int]) -> list[int]:
    """Return ids as plain ints; NumPy integers are welcome, floats, booleans and text are not."""
    if isinstance(token_ids, (str, bytes)) or not isinstance(token_ids, Iterable):
        raise OptionError(f"token ids must be a list of whole numbers, not {type(token_ids).__name__}")
    ids = []
    for token_id in token_ids:
        if isinstance(token_id, (bool, np.bool_)) or not hasattr(token_id, "__index__"):
            raise OptionError(f"token ids must be whole numbers, not {token_id!r}")
        ids.append(operator.index(token_id))
    return ids


def _measure(sequence: Sequence, num_tokens: int, load_s: float) -> Timings:
    """Timings of a sequence whose first `num_tokens` generated ids are the answer."""
    if sequence.started_s is None or sequence.first_token_s is None or sequence.last_token_s is None:
        return Timings(load_s, 0.0, sequence.num_prompt, 0.0, 0, 0.0, sequence.num_reused)
    decode_s = sequence.last_token_s - sequence.first_token_s
    return Timings(
        load_s=load_s,
        ttft_s=sequence.first_token_s - sequence.created_s,
        prefill_tokens=sequence.num_prompt,
        prefill_tps=_rate(sequence.num_prompt - sequence.num_reused, sequence.first_token_s - sequence.started_s),
        decode_tokens=max(num_tokens - 1, 0),
        decode_tps=_rate(sequence.num_output - 1, decode_s),
        reused_tokens=sequence.num_reused,
    )


def _rate(count: int, seconds: float) -> float:
    return count / seconds if seconds > 0.0 else 0.0
