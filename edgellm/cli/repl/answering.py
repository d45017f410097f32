"""Waits for an answer in such a way that Ctrl-C is heard at once, also while a long prompt is read.

A second thread waits for the model; the first one looks every few hundredths of a second whether there is text or a wish to
stop. Knows no screen. Next hop: `..stream` makes the pieces, `session.py` shows them.
"""

from __future__ import annotations

import contextlib
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...stream import Stream

TICK_S = 0.04
PATIENCE = 3  # after so many times Ctrl-C in one answer the whole program is interrupted, whatever it waits for


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an answer is. Times in seconds, numbers in tokens.

    num_read of num_prompt: the prompt's tokens in the cache, num_reused of them from before. num_said: of the answer.
    elapsed_s: since the question. speaking_s: since the first token.
    """

    num_read: int = 0
    num_prompt: int = 0
    num_reused: int = 0
    num_said: int = 0
    elapsed_s: float = 0.0
    speaking_s: float = 0.0

    @property
    def tokens_per_s(self) -> float:
        """How fast the answer comes; 0 before there are two tokens."""
        return (self.num_said - 1) / self.speaking_s if self.num_said > 1 and self.speaking_s > 0 else 0.0

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the prompt is read, at the pace so far; None before there is one."""
        done, left = self.num_read - self.num_reused, self.num_prompt - self.num_read
        return left * self.elapsed_s / done if done > 0 else None


class Watch:
    """Says how far a stream is, whenever asked."""

    def __init__(self, stream: Stream) -> None:
        self._sequence: Any = getattr(stream, "_sequence", None)
        self._started_s = time.perf_counter()

    def look(self) -> Progress:
        """Return the progress now."""
        sequence, now = self._sequence, time.perf_counter()
        if sequence is None:
            return Progress(elapsed_s=now - self._started_s)
        first_s = sequence.first_token_s
        return Progress(
            num_read=min(sequence.num_cached, sequence.num_prompt),
            num_prompt=sequence.num_prompt,
            num_reused=sequence.num_reused,
            num_said=max(sequence.num_output, 0),
            elapsed_s=now - self._started_s,
            speaking_s=0.0 if first_s is None else now - first_s,
        )


@contextlib.contextmanager
def catching_interrupts() -> Iterator[Callable[[], bool]]:
    """Count Ctrl-C instead of raising KeyboardInterrupt anywhere; gives a function that says whether there was one."""
    count = 0

    def catch(_number: int, _frame: object) -> None:
        nonlocal count
        count += 1
        if count >= PATIENCE:
            raise KeyboardInterrupt

    def was_interrupted() -> bool:
        return count > 0

    if threading.current_thread() is not threading.main_thread():
        yield was_interrupted
        return
    previous = signal.signal(signal.SIGINT, catch)
    try:
        yield was_interrupted
    finally:
        signal.signal(signal.SIGINT, previous)


def listen(stream: Stream, was_interrupted: Callable[[], bool], tick_s: float = TICK_S) -> Iterator[str]:
    """Yield what there is of the answer at least every `tick_s` seconds, "" if nothing is new.

    Raises what the stream raises, and KeyboardInterrupt as soon as there was one; the stream is closed then.
    """
    arrived: queue.SimpleQueue[str | BaseException | None] = queue.SimpleQueue()

    def wait_for_model() -> None:
        try:
            for piece in stream:
                arrived.put(piece)
        except BaseException as error:  # for the thread that shows it
            arrived.put(error)
        else:
            arrived.put(None)

    threading.Thread(target=wait_for_model, name="edgellm answer", daemon=True).start()
    while True:
        text, end = _take(arrived, tick_s)
        if text or end == "":
            yield text
        if was_interrupted():
            stream.close()
            raise KeyboardInterrupt
        if isinstance(end, BaseException):
            raise end
        if end is None:
            return


def _take(
    arrived: queue.SimpleQueue[str | BaseException | None], tick_s: float
) -> tuple[str, str | BaseException | None]:
    """Return all text that has arrived, and how the answer ended: None, an error, or "" if it goes on."""
    text = ""
    with contextlib.suppress(queue.Empty):
        item = arrived.get(timeout=tick_s)
        while isinstance(item, str):
            text += item
            item = arrived.get_nowait()
        return text, item
    return text, ""
