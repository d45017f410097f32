"""Ctrl-C is heard while a model is busy; how far an answer is."""

from __future__ import annotations

import signal
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from edgellm.cli.repl.answering import PATIENCE, Progress, Watch, catching_interrupts, listen


class BusyStream:
    """Says one word, then is busy until it is closed."""

    def __init__(self) -> None:
        self.is_closed = threading.Event()
        self._words = ["word"]

    def __iter__(self) -> BusyStream:
        return self

    def __next__(self) -> str:
        if self._words:
            return self._words.pop()
        assert self.is_closed.wait(60)
        raise StopIteration

    def close(self) -> None:
        self.is_closed.set()


def test_ctrl_c_ends_the_wait_though_the_model_is_busy() -> None:
    stream: Any = BusyStream()
    said, pressed_s = "", 0.0
    with pytest.raises(KeyboardInterrupt), catching_interrupts() as was_interrupted:
        for text in listen(stream, was_interrupted):
            said += text
            if said and not text and not pressed_s:
                pressed_s = time.monotonic()
                signal.raise_signal(signal.SIGINT)
    assert stream.is_closed.is_set() and said == "word"
    assert time.monotonic() - pressed_s < 5  # it is a few hundredths; without a second thread it would be a minute


def test_one_interrupt_is_counted_and_several_are_raised() -> None:
    before = signal.getsignal(signal.SIGINT)
    with catching_interrupts() as was_interrupted:
        assert not was_interrupted()
        for _ in range(PATIENCE - 1):
            signal.raise_signal(signal.SIGINT)
        assert was_interrupted()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_in_another_thread_interrupts_are_left_alone() -> None:
    found: list[Any] = []

    def look() -> None:
        with catching_interrupts() as was_interrupted:
            found.extend([was_interrupted(), signal.getsignal(signal.SIGINT)])

    before = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert found == [False, before]


def test_all_text_arrives_and_so_do_errors() -> None:
    def pieces() -> Any:
        yield from ("a", "b", "c")
        raise ValueError("no more")

    said = ""
    with pytest.raises(ValueError, match="no more"):
        for text in listen(pieces(), lambda: False):
            said += text
    assert said == "abc"
    assert "".join(listen(iter("xyz"), lambda: False)) == "xyz"  # type: ignore[arg-type]


def test_progress_of_a_sequence() -> None:
    sequence = SimpleNamespace(num_cached=30, num_prompt=100, num_reused=10, num_output=0, first_token_s=None)
    stream: Any = SimpleNamespace(_sequence=sequence)
    look = Watch(stream).look()
    assert (look.num_read, look.num_prompt, look.num_reused, look.num_said) == (30, 100, 10, 0)
    assert look.speaking_s == 0 and look.tokens_per_s == 0
    assert Progress(30, 100, 10, 0, 4.0).seconds_left == pytest.approx(14.0)
    assert Progress(10, 100, 10, 0, 4.0).seconds_left is None
    assert Progress(num_said=11, speaking_s=2.0).tokens_per_s == pytest.approx(5.0)
    unknown: Any = object()
    assert Watch(unknown).look().num_prompt == 0
