"""An answer on its way: ids from the engine become text, piece by piece.

Next hops: `shared_engine.py` makes ids, `tokenizer/stream.py` turns them into text.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

from .completion import Completion, measure
from .sampling import TokenLogprobs
from .sequence import Sequence

if TYPE_CHECKING:
    from .llm import LLM
    from .tokenizer.stream import HasTokenBytes


MAX_AHEAD = 32
"""Ids that a stream's answer may be ahead of its reader; then it pauses."""


class PromptProgress(NamedTuple):
    """How far a prompt is read, by llama-server's names: its tokens, those that were in the cache already, those that are there
    now, and the milliseconds since it was begun."""

    total: int
    cache: int
    processed: int
    time_ms: int


class Stream:
    """An answer on its way: iterate over it for pieces of text, whole characters only.

    params: how its tokens are chosen. completion: the Completion once the answer has ended, None before. `close`, leaving a
    `with` block, an exception and garbage collection all cancel the generation and free its place in the cache;
    `completion` then is what there is.
    on_prefill(done, total): called while one waits for the first piece, as tokens of the prompt are computed.
    on_news: called by the engine's thread when there may be something to take; see SharedEngine.add.
    tokens: gives each token's bytes; the model's tokenizer if None.
    """

    def __init__(
        self,
        llm: LLM,
        sequence: Sequence,
        on_prefill: Callable[[int, int], None] | None = None,
        on_news: Callable[[], None] | None = None,
        tokens: HasTokenBytes | None = None,
    ) -> None:
        self.completion: Completion | None = None
        self.params = sequence.params
        self._llm = llm
        self._sequence = sequence
        self._text = llm._make_text_stream(sequence.params.stop, tokens)
        self._pieces: list[str] = []
        self._num_seen = 0
        self._on_prefill = on_prefill
        self._prefill_told: tuple[int, int] | None = None
        sequence.max_ahead = MAX_AHEAD
        llm._shared.add(sequence, on_news)

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> str:
        """Return the next piece, never an empty one."""
        try:
            while self.completion is None:
                self._wait(self._num_seen)
                if piece := self.take_ready():
                    return piece
        except BaseException:
            self.close()
            raise
        raise StopIteration

    def take_ready(self) -> str:
        """Return the next piece if it is there, without waiting; "" if not, or if the answer has ended.

        Raises what ended the answer, if that was an error.
        """
        while self.completion is None and self._has_news():
            if piece := self._step():
                return piece
        return ""

    def finish(self) -> Completion:
        """Wait for the end of the answer, however far it is ahead of what was read. -> `completion`."""
        self.read_all()
        try:
            while self.completion is None:
                self._wait(self._num_seen if self._may_end_here else sys.maxsize)
                while self.take_ready():
                    pass
        except BaseException:
            self.close()
            raise
        return self.completion

    def result(self) -> Any:
        """Wait for the end. -> `completion`, or an instance of the Pydantic model class that was given as schema."""
        completion = self.finish()
        if self.params.schema is None:
            return completion
        from .structured import result_of

        return result_of(completion, self.params.schema)

    def read_all(self) -> None:
        """Promise to read to the end: the answer need not wait for its reader any more."""
        self._sequence.max_ahead = None
        self._llm._shared.note_read(self._sequence, self._num_seen)

    @property
    def logprobs(self) -> list[TokenLogprobs] | None:
        """What the model thought at each id whose text is out or held back, if that was asked for."""
        if self.params.logprobs is None:
            return None
        return [found for found in self._sequence.logprobs[: self._num_seen] if found is not None]

    @property
    def num_tokens(self) -> int:
        """How many tokens the answer has so far, read or not."""
        return self._sequence.num_ready

    @property
    def prefill_progress(self) -> tuple[int, int]:
        """(tokens of the prompt that are done, tokens of the prompt); those that were in the cache already are done."""
        sequence = self._sequence
        total = sequence.num_prompt
        return (total if sequence.num_output else min(sequence.num_cached, total)), total

    @property
    def is_reading(self) -> bool:
        """True until there is a first token, or the answer has ended without one."""
        return not self._sequence.num_output and not self._sequence.is_finished

    @property
    def prompt_progress(self) -> PromptProgress | None:
        """`prefill_progress` and what belongs to it; None before the prompt is begun."""
        sequence = self._sequence
        if sequence.started_s is None:
            return None
        done, total = self.prefill_progress
        now = time.perf_counter() if sequence.first_token_s is None else sequence.first_token_s
        return PromptProgress(total, sequence.num_reused, done, round(1000 * (now - sequence.started_s)))

    def close(self) -> None:
        """Cancel the generation and free its place; harmless when it has ended."""
        try:
            self._llm._shared.cancel(self._sequence, wait=True)
        finally:
            self.cancel()

    def cancel(self) -> None:
        """Like `close`, without waiting for the place to be free: that is so at most one step later."""
        self._llm._shared.cancel(self._sequence)
        if self.completion is None:
            self._complete("cancelled")

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def __del__(self) -> None:
        self._llm._shared.cancel(self._sequence)

    def _wait(self, num_seen: int) -> None:
        self._llm._shared.wait(self._sequence, num_seen, None if self._on_prefill is None else self.tell_prefill)
        self.tell_prefill()  # a reader may come when all is done: it still hears of the end

    def tell_prefill(self) -> None:
        """Call on_prefill if the prompt has moved on since the last time."""
        if self._on_prefill is not None and self._prefill_told != self.prefill_progress:
            self._prefill_told = self.prefill_progress
            self._on_prefill(*self._prefill_told)

    @property
    def _may_end_here(self) -> bool:
        """True if the text, which only this side sees, may end the answer: then every id must be looked at."""
        return bool(self.params.stop)

    def _step(self) -> str:
        """Take what is there. -> the piece of text that it completes, maybe none."""
        piece, finish_reason = self._advance()
        if piece:
            self._pieces.append(piece)
        if finish_reason is not None:
            self._complete(finish_reason)
        return piece

    def _has_news(self) -> bool:
        return self._sequence.num_ready > self._num_seen or self._sequence.is_finished

    def _advance(self) -> tuple[str, str | None]:
        """Take what is there. Return the text that it completes, maybe none, and why the answer ends, if it does."""
        sequence = self._sequence
        if sequence.num_ready <= self._num_seen:
            if sequence.error is not None:
                raise sequence.error
            return self._text.finish(), sequence.finish_reason
        token_id = sequence.token_ids[sequence.num_prompt + self._num_seen]
        self._num_seen += 1
        self._llm._shared.note_read(sequence, self._num_seen)
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
            raw_text="".join(self._pieces),
            token_ids=sequence.output_ids[: self._num_seen],
            prompt_token_ids=sequence.prompt_ids,
            finish_reason=finish_reason,
            timings=measure(sequence, self._num_seen, self._llm.load_s),
            logprobs=self.logprobs,
            num_dropped_tokens=self._llm._shared.engine.num_dropped(sequence.num_prompt + self._num_seen),
        )
