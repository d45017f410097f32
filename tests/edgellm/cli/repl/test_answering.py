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
        for heard in listen(stream, was_interrupted):
            said += heard.text
            if said and not heard.text and not pressed_s:
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
        for heard in listen(pieces(), lambda: False):
            said += heard.text
    assert said == "abc"
    assert "".join(heard.text for heard in listen(iter("xyz"), lambda: False)) == "xyz"  # type: ignore[arg-type]


def test_thoughts_are_heard_apart() -> None:
    deltas = [SimpleNamespace(content="", reasoning="hm"), SimpleNamespace(content="Yes", reasoning="")]
    stream: Any = SimpleNamespace(deltas=lambda: iter(deltas))
    heard = list(listen(stream, lambda: False))
    assert "".join(h.thought for h in heard) == "hm" and "".join(h.text for h in heard) == "Yes"


def test_progress() -> None:
    stream: Any = SimpleNamespace(prefill_progress=(0, 1000), num_tokens=0)
    now_s = [0.0]
    watch = Watch(stream, lambda: now_s[0])
    assert watch.look() == Progress(0, 1000)
    now_s[0], stream.prefill_progress = 0.1, (200, 1000)  # known already
    assert watch.look().left_s is None
    now_s[0], stream.prefill_progress = 2.1, (400, 1000)
    look = watch.look()
    assert look.left_s == pytest.approx(6.0) and look.elapsed_s == pytest.approx(2.1) and look.num_said == 0
    now_s[0], stream.num_tokens = 9.0, 1
    assert watch.look().tokens_per_s == 0.0
    now_s[0], stream.num_tokens = 11.0, 21
    assert watch.look().tokens_per_s == pytest.approx(10.0)
