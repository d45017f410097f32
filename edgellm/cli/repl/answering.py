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
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from ...stream import Stream

TICK_S = 0.04
BASE_S = 0.25  # what is done of a prompt by then was known already, or is too little to judge by
PATIENCE = 3  # after so many times Ctrl-C in one answer the whole program is interrupted, whatever it waits for


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an answer is. Times in seconds, numbers in tokens.

    num_read of num_prompt: the prompt's tokens that are done. num_said: of the answer. elapsed_s: since the question.
    left_s: until the prompt is read, at the pace so far; None before there is one. tokens_per_s: of the answer, or 0.
    """

    num_read: int = 0
    num_prompt: int = 0
    num_said: int = 0
    elapsed_s: float = 0.0
    left_s: float | None = None
    tokens_per_s: float = 0.0


class Watch:
    """Says how far a stream is, whenever asked."""

    def __init__(self, stream: Stream, clock: Callable[[], float] = time.perf_counter) -> None:
        self._stream = stream
        self._clock = clock
        self._started_s = self._base_s = clock()
        self._base = 0  # tokens that were done at _base_s: what the cache knew already says nothing of the pace
        self._first_s: float | None = None
        self._first = 0

    def look(self) -> Progress:
        """Return the progress now."""
        now_s = self._clock()
        num_read, num_prompt = self._stream.prefill_progress
        num_said = self._stream.num_tokens
        if now_s - self._started_s < BASE_S:
            self._base_s, self._base = now_s, num_read
        if num_said and self._first_s is None:
            self._first_s, self._first = now_s, num_said
        left_s, speed = None, 0.0
        if num_read > self._base:
            left_s = (num_prompt - num_read) * (now_s - self._base_s) / (num_read - self._base)
        if self._first_s is not None and now_s > self._first_s:
            speed = (num_said - self._first) / (now_s - self._first_s)
        return Progress(num_read, num_prompt, num_said, now_s - self._started_s, left_s, speed)


class Heard(NamedTuple):
    """What has come of an answer since the last look, most often nothing."""

    text: str = ""
    thought: str = ""


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


def listen(stream: Stream, was_interrupted: Callable[[], bool], tick_s: float = TICK_S) -> Iterator[Heard]:
    """Yield what there is of the answer, at least every `tick_s` seconds.

    Raises what the stream raises, and KeyboardInterrupt as soon as there was one; the stream is closed then.
    """
    arrived: queue.SimpleQueue[Heard | BaseException | None] = queue.SimpleQueue()

    def wait_for_model() -> None:
        try:
            for heard in _pieces(stream):
                arrived.put(heard)
        except BaseException as error:  # for the thread that shows it
            arrived.put(error)
        else:
            arrived.put(None)

    threading.Thread(target=wait_for_model, name="edgellm-answer", daemon=True).start()
    while True:
        heard, end = _take(arrived, tick_s)
        yield heard
        if was_interrupted():
            stream.close()
            raise KeyboardInterrupt
        if isinstance(end, BaseException):
            raise end
        if end is None:
            return


def _pieces(stream: Any) -> Iterator[Heard]:
    if not hasattr(stream, "deltas"):  # no conversation: all of it is text
        yield from map(Heard, stream)
        return
    for delta in stream.deltas():
        yield Heard(delta.content, delta.reasoning)


def _take(
    arrived: queue.SimpleQueue[Heard | BaseException | None], tick_s: float
) -> tuple[Heard, BaseException | str | None]:
    """Return all that has arrived, and how the answer ended: None, an error, or "" if it goes on."""
    heard = Heard()
    with contextlib.suppress(queue.Empty):
        item = arrived.get(timeout=tick_s)
        while isinstance(item, Heard):
            heard = Heard(heard.text + item.text, heard.thought + item.thought)
            item = arrived.get_nowait()
        return heard, item
    return heard, ""
