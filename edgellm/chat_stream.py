"""An answer to a conversation on its way: text for the user, reasoning and calls of tools, each apart.

Next hops: `stream.py` brings the text, `tool_calls/splitter.py` takes it apart.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from .sequence import Sequence
from .stream import Stream
from .tool_calls import Delta, Turn

if TYPE_CHECKING:
    from .llm import LLM


class ChatStream(Stream):
    """An answer on its way: iterate over it for the text, or over `deltas()` for everything.

    Both may be mixed: what one has given, the other does not give again. `completion` and closing are as with Stream.
    """

    def __init__(
        self,
        llm: LLM,
        sequence: Sequence,
        turn: Turn,
        on_prefill: Callable[[int, int], None] | None = None,
        on_news: Callable[[], None] | None = None,
    ) -> None:
        self._splitter, self._calls = turn.make_splitter()
        self._waiting: deque[Delta] = deque()
        super().__init__(llm, sequence, on_prefill, on_news, turn)

    def __next__(self) -> str:
        """Return the next piece of the text, never an empty one."""
        while (delta := self.next_delta()) is not None:
            if delta.content:
                return delta.content
        raise StopIteration

    def deltas(self) -> Iterator[Delta]:
        """Yield what the answer grows by: text, reasoning, pieces of calls.

        A call is announced when its arguments begin. Should it break off or turn out malformed, it is not among the
        completion's tool_calls, and its text follows as content.
        """
        while (delta := self.next_delta()) is not None:
            yield delta

    def next_delta(self) -> Delta | None:
        """Return the next of `deltas()`, None after the last."""
        try:
            while (delta := self.take_delta()) is None and self.completion is None:
                self._wait(self._num_seen)
        except BaseException:
            self.close()
            raise
        return delta

    def take_delta(self) -> Delta | None:
        """Return the next of `deltas()` if it is there, without waiting."""
        return self._waiting.popleft() if self._is_waiting() else None

    def take_text(self) -> str:
        """Return the next of `deltas()` if it is there and is text, without waiting; "" if not."""
        return self._waiting.popleft().content if self._is_waiting() and self._waiting[0].content else ""

    def _is_waiting(self) -> bool:
        while not self._waiting and self.completion is None and self._has_news():
            self._step()
        return bool(self._waiting)

    def take_ready(self) -> str:
        """Return the next piece of the text if it is there, without waiting; "" if not, or if the answer has ended."""
        while (delta := self.take_delta()) is not None:
            if delta.content:
                return delta.content
        return ""

    @property
    def _may_end_here(self) -> bool:
        return True  # calls may be complete

    def _step(self) -> str:
        piece, finish_reason = self._advance()
        if piece:
            self._pieces.append(piece)
            self._waiting += self._splitter.push(piece)
        if self._splitter.is_full and finish_reason is None:
            self._llm._shared.cancel(self._sequence)
            finish_reason = "stop"
        if finish_reason is not None:
            self._complete(finish_reason)
        return piece

    def _complete(self, finish_reason: str) -> None:
        self._waiting += self._splitter.finish()
        super()._complete(finish_reason)
        assert self.completion is not None
        calls = tuple(self._calls.finished)
        self.completion = dataclasses.replace(
            self.completion,
            text=self._splitter.content,
            reasoning=self._splitter.reasoning,
            tool_calls=calls,
            finish_reason="tool_calls" if calls and finish_reason == "stop" else finish_reason,
        )
