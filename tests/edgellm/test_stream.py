"""Stream on a scripted model: interrupted, suspended, unread, told of the prompt. Cases O12, O13."""

from __future__ import annotations

import dataclasses
import signal
import threading
from collections.abc import Iterator

import pytest
from scripted_llm import FREE, free_slots, make_llm

from edgellm.llm import LLM
from edgellm.stream import MAX_AHEAD


@pytest.fixture
def llm() -> Iterator[LLM]:
    llm, _ = make_llm()
    with llm:
        yield llm


def test_an_interrupt_ends_the_stream_and_keeps_the_model() -> None:
    """Ctrl-C during a step that would last for ever, in a stream, in `generate` and in `logits`."""
    llm, backend = make_llm()
    expected = llm.generate("a", FREE, max_tokens=9)
    stream = llm.stream("a", FREE)
    text = next(stream) + next(stream)
    backend.gate = threading.Event()
    for call in (lambda: list(stream), lambda: llm.generate("b", FREE), lambda: llm.logits([1, 2])):
        threading.Timer(0.05, lambda: signal.raise_signal(signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            call()
    assert stream.completion is not None and stream.completion.text.startswith(text)
    assert free_slots(llm) == 3
    backend.gate = None
    assert llm.generate("a", FREE, max_tokens=9).token_ids == expected.token_ids


def test_a_suspended_stream_blocks_nobody_and_is_not_changed_by_others(llm: LLM) -> None:
    expected = llm.generate("a", FREE, max_tokens=30)
    stream = llm.stream("a", FREE, max_tokens=30)
    text = next(stream)
    other = llm.generate("b", FREE, max_tokens=50)  # its steps run the suspended sequence as well
    assert len(other.token_ids) == 50
    text += "".join(stream)
    assert text == expected.text
    assert stream.completion is not None and stream.completion.token_ids == expected.token_ids
    stream = llm.stream("a", FREE)
    next(stream)
    llm.generate("b", FREE, max_tokens=50)
    stream.close()
    assert stream.completion is not None and len(stream.completion.token_ids) < 5, "ids that nobody saw"


def test_a_stream_that_nobody_reads_pauses_and_ends_like_any_other() -> None:
    llm, _ = make_llm()
    expected = llm.generate("a", FREE, max_tokens=150)
    stream = llm.stream("a", FREE, max_tokens=150)
    while not llm._shared._is_idle or stream._sequence.num_output < MAX_AHEAD:
        pass
    assert stream._sequence.num_output == MAX_AHEAD
    assert stream.finish() == dataclasses.replace(expected, timings=stream.completion.timings)  # type: ignore[union-attr]
    assert stream.finish() is stream.completion


def test_progress_of_the_prompt() -> None:
    llm, _ = make_llm(prefill_chunk=8)
    told: list[tuple[int, int]] = []
    llm.generate([1] * 30, FREE, max_tokens=2, on_prefill=lambda done, total: told.append((done, total)))
    assert told == sorted(told) and told[-1] == (30, 30) and {total for _, total in told} == {30}
    stream = llm.stream([1] * 30, FREE, max_tokens=2)
    next(stream)
    assert stream.prefill_progress == (30, 30)


def test_a_reader_who_comes_when_the_prompt_is_done_hears_of_it() -> None:
    llm, _ = make_llm(prefill_chunk=8)
    told: list[tuple[int, int]] = []
    stream = llm.stream([1] * 30, FREE, max_tokens=2, on_prefill=lambda done, total: told.append((done, total)))
    while not stream._sequence.is_finished:
        pass
    stream.finish()
    assert told == [(30, 30)]
