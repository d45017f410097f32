"""An answer on its way: ids from the engine become text, piece by piece.

Next hops: `shared_engine.py` makes ids, `tokenizer/stream.py` turns them into text.
"""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING

from .completion import Completion, measure
from .sampling import TokenLogprobs
from .sequence import Sequence

if TYPE_CHECKING:
    from .llm import LLM
    from .tokenizer.stream import HasTokenBytes


class Stream:
    """An answer on its way: iterate over it for pieces of text, whole characters only.

    params: how its tokens are chosen. completion: the Completion once the answer has ended, None before. `close`, leaving a
    `with` block, an exception and garbage collection all cancel the generation and free its place in the cache;
    `completion` then is what there is.
    """

    def __init__(self, llm: LLM, sequence: Sequence, tokens: HasTokenBytes | None = None) -> None:
        """Begin. tokens: gives each token's bytes; the model's tokenizer if None."""
        self.completion: Completion | None = None
        self.params = sequence.params
        self._llm = llm
        self._sequence = sequence
        self._text = llm._make_text_stream(sequence.params.stop, tokens)
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

    @property
    def logprobs(self) -> list[TokenLogprobs] | None:
        """What the model thought at each id whose text is out or held back, if that was asked for."""
        if self._sequence.params.logprobs is None:
            return None
        return [found for found in self._sequence.logprobs[: self._num_seen] if found is not None]

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
        if sequence.num_ready <= self._num_seen:
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
            raw_text="".join(self._pieces),
            token_ids=sequence.output_ids[: self._num_seen],
            prompt_token_ids=sequence.prompt_ids,
            finish_reason=finish_reason,
            timings=measure(sequence, self._num_seen, self._llm.load_s),
            logprobs=self.logprobs,
            num_dropped_tokens=self._llm._shared.engine.num_dropped(sequence.num_prompt + self._num_seen),
        )
