"""SharedEngine: one thread runs the engine for all; submitting, waiting, cancelling, closing. Cases O12, O13."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from scripted_model import VOCAB_SIZE, ScriptedBackend, expected_logits, make_engine

from edgellm.config import SamplingParams
from edgellm.errors import EdgeLLMError, OptionError
from edgellm.sequence import Sequence
from edgellm.shared_engine import SharedEngine

GREEDY = SamplingParams(temperature=0.0)
PATIENCE_S = 30


def answer(prompt: list[int], count: int) -> list[int]:
    ids = list(prompt)
    for _ in range(count):
        ids.append(int(expected_logits(ids, [None]).argmax()))
    return ids[len(prompt) :]


def until(condition: Callable[[], bool]) -> None:
    """Wait for what another thread is about to do."""
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, "it does not come"
        time.sleep(0.001)


def in_threads(*functions: Callable[[], None]) -> None:
    errors: list[BaseException] = []

    def guarded(function: Callable[[], None]) -> None:
        try:
            function()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(function,), daemon=True) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive(), "a thread hangs"
    if errors:
        raise errors[0]


def num_threads() -> int:
    return len([thread for thread in threading.enumerate() if thread.name == "edgellm-engine"])


def make_shared(**options: int) -> tuple[SharedEngine, ScriptedBackend]:
    engine, backend = make_engine(**options)  # type: ignore[arg-type]
    return SharedEngine(engine), backend


@pytest.fixture(autouse=True)
def no_thread_stays() -> Iterator[None]:
    yield
    until(lambda: num_threads() == 0)


def test_many_threads_share_an_engine_and_each_gets_its_own_answer() -> None:
    shared, backend = make_shared(max_sequences=3, prefill_chunk=5)

    def ask(start: int) -> None:
        for round_number in range(4):
            prompt = [(start * 7 + i) % VOCAB_SIZE for i in range(1 + start + 3 * round_number)]
            sequence = Sequence(prompt, SamplingParams(temperature=0, max_tokens=10))
            shared.add(sequence)
            seen: list[int] = []
            while not (sequence.is_finished and len(seen) == sequence.num_output):
                shared.wait(sequence, len(seen))
                seen = sequence.output_ids
                if start == 5 and len(seen) > 3:
                    shared.cancel(sequence, wait=True)
            assert seen == answer(prompt, len(seen))
            assert len(seen) == 10 or start == 5

    in_threads(*[lambda start=start: ask(start) for start in range(6)])
    assert not shared.engine.has_work and num_threads() == 1
    assert max(len(set(batch.sequences.tolist())) for batch in backend.batches) > 1, "sequences did not share steps"
    shared.close()


def test_changes_wait_for_the_end_of_a_step_and_closing_wakes_everybody() -> None:
    shared, backend = make_shared()
    backend.gate = threading.Event()
    first, second = Sequence([1], GREEDY), Sequence([2], GREEDY)
    shared.add(first)
    assert backend.in_gate.wait(PATIENCE_S)
    shared.add(second)
    shared.cancel(second)
    assert shared.engine._scheduler.sequences == [first] and not second.is_finished, "changed under a running step"
    backend.gate.set()
    in_threads(lambda: shared.wait(first, 0), lambda: shared.wait(second, 0))
    assert second.finish_reason == "cancelled" and first.num_output >= 1
    in_threads(lambda: shared.wait(first, 10**6), shared.close)
    assert backend.is_closed and first.is_finished
    shared.close()
    with pytest.raises(EdgeLLMError, match="closed"):
        shared.add(Sequence([1]))


def test_a_call_comes_between_two_steps_and_its_error_goes_to_the_caller() -> None:
    shared, backend = make_shared()
    backend.gate = threading.Event()
    sequence = Sequence([1, 2, 3], SamplingParams(max_tokens=3, temperature=0.0))
    shared.add(sequence)
    assert backend.in_gate.wait(PATIENCE_S)
    results: list[object] = []

    def fail() -> None:
        raise OptionError("mine")

    def ask() -> None:
        results.append(shared.call(lambda: sequence.num_output))
        with pytest.raises(OptionError, match="mine"):
            shared.call(fail)
        results.append("refused")

    asking = threading.Thread(target=ask)
    asking.start()
    asking.join(0.05)
    assert results == [], "a call came into the middle of a step"
    backend.gate.set()
    asking.join(PATIENCE_S)
    shared.wait(sequence, 2)
    assert results == [results[0], "refused"] and results[0] in (1, 2, 3)
    assert sequence.num_output == 3 and shared.call(lambda: 7) == 7
    shared.close()


def test_an_error_in_a_step_is_that_of_those_who_run_and_the_thread_goes_on() -> None:
    shared, backend = make_shared(max_sequences=1)
    run = backend.run

    def fail(batch: object) -> object:
        backend.run = run  # type: ignore[method-assign]
        raise MemoryError("not today")

    backend.run = fail  # type: ignore[assignment, method-assign]
    first, second = Sequence([1], GREEDY), Sequence([2], SamplingParams(temperature=0, max_tokens=2))
    shared.call(lambda: (shared.engine.add(first), shared.engine.add(second)))
    in_threads(lambda: shared.wait(first, 0), lambda: shared.wait(second, 5))
    until(lambda: second.is_finished)
    assert first.finish_reason == "error" and isinstance(first.error, MemoryError)
    assert second.output_ids == answer([2], 2)
    shared.close()


def test_an_unwanted_prompt_frees_its_place_though_its_step_would_last() -> None:
    shared, backend = make_shared()
    backend.gate = threading.Event()  # which nobody opens
    sequence = Sequence([1] * 40, GREEDY)
    shared.add(sequence)
    assert backend.in_gate.wait(PATIENCE_S)
    shared.cancel(sequence, wait=True)
    assert sequence.finish_reason == "cancelled" and backend.num_aborted == 1
    assert shared.engine._cache.num_free_slots == 3
    backend.gate.set()
    other = Sequence([1] * 40, SamplingParams(temperature=0, max_tokens=4))
    shared.add(other)
    shared.wait(other, 3)
    assert other.output_ids == answer([1] * 40, 4)
    shared.close()


def test_closing_ends_a_long_step() -> None:
    shared, backend = make_shared()
    backend.gate = threading.Event()
    sequences = [Sequence([i] * 40, GREEDY) for i in (1, 2)]
    for sequence in sequences:
        shared.add(sequence)
    assert backend.in_gate.wait(PATIENCE_S)
    closed: list[str] = []
    shared.close(lambda: closed.append("all"))
    assert backend.num_aborted >= 1 and closed == ["all"] and num_threads() == 0
    assert all("closed before" in str(sequence.error) for sequence in sequences)


def test_a_slow_reader_costs_nothing_and_goes_on_when_it_reads() -> None:
    shared, backend = make_shared()
    sequence = Sequence([1], GREEDY)
    sequence.max_ahead = 8
    shared.add(sequence)
    shared.wait(sequence, 7)
    until(lambda: shared._is_idle)
    assert sequence.num_output == 8
    other = Sequence([2], SamplingParams(temperature=0, max_tokens=20))
    shared.add(other)
    shared.wait(other, 19)
    assert other.output_ids == answer([2], 20) and sequence.num_output == 8
    until(lambda: shared._is_idle)
    count = len(backend.batches)
    time.sleep(0.05)
    assert len(backend.batches) == count
    shared.note_read(sequence, 2)
    time.sleep(0.01)
    assert sequence.num_output == 8, "it is not woken for every id"
    shared.note_read(sequence, 4)
    shared.wait(sequence, 11)
    assert sequence.output_ids == answer([1], 12)
    shared.close()


def test_news_of_prompt_ids_and_end() -> None:
    shared, backend = make_shared(prefill_chunk=8)
    sequence, told = Sequence([1] * 30, SamplingParams(temperature=0, max_tokens=2)), threading.Semaphore(0)
    progress: list[int] = []
    shared.add(sequence, told.release)
    while not sequence.is_finished:
        assert told.acquire(timeout=PATIENCE_S)
    other = Sequence([2] * 30, SamplingParams(temperature=0, max_tokens=2))
    backend.gate = threading.Event()  # no step ends before somebody waits for it
    shared.add(other)
    threading.Timer(0.2, backend.gate.set).start()
    shared.wait(other, 1, lambda: progress.append(other.num_cached))
    shared.close()
    assert progress and progress == sorted(progress) and progress[0] >= 8


def test_a_closed_or_unused_engine_has_no_thread() -> None:
    shared, backend = make_shared()
    assert num_threads() == 0
    shared.close()
    assert backend.is_closed and num_threads() == 0
    shared, backend = make_shared()
    assert shared.call(num_threads) == 1
    shared.close()
    assert shared.call(lambda: 5) == 5, "what is asked afterwards is answered by the caller's thread"


def test_a_garbage_collector_in_the_engines_thread_may_close_it() -> None:
    shared, backend = make_shared()
    closed: list[int] = []
    shared.call(lambda: shared.close(lambda: closed.append(threading.get_ident())))
    until(lambda: num_threads() == 0)
    assert backend.is_closed and len(closed) == 1


CODE = """
import sys
sys.path.insert(0, sys.argv[1])
from scripted_model import make_engine
from edgellm.config import SamplingParams
from edgellm.sequence import Sequence
from edgellm.shared_engine import SharedEngine
engine, backend = make_engine(max_context=100_000)
shared = SharedEngine(engine)
sequence = Sequence([1, 2, 3], SamplingParams(temperature=0.0))
shared.add(sequence)
shared.wait(sequence, 5)
"""
SUPPORT = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support")


def test_a_program_may_end_while_an_answer_is_made() -> None:
    done = subprocess.run([sys.executable, "-c", CODE, SUPPORT], capture_output=True, text=True, timeout=PATIENCE_S)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


INTERRUPTED = """
import signal, threading, time
gate = backend.gate = threading.Event()  # which nobody opens: the step lasts for ever
other = Sequence([4] * 50, SamplingParams(temperature=0.0))
shared.add(other)
threading.Timer(0.3, lambda: signal.raise_signal(signal.SIGINT)).start()
start = time.monotonic()
try:
    shared.wait(other, 0)
except KeyboardInterrupt:
    print(f"{time.monotonic() - start:.3f}")
    shared.cancel(other, wait=True)
    gate.set()
    print(other.finish_reason)
"""


def test_ctrl_c_is_seen_while_waiting() -> None:
    code = CODE + INTERRUPTED
    done = subprocess.run([sys.executable, "-c", code, SUPPORT], capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    waited, reason = done.stdout.split()
    assert 0.2 < float(waited) < 5 and reason == "cancelled"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_child_is_told_that_its_threads_are_not_there() -> None:
    code = CODE + (
        "import os, warnings\nwarnings.simplefilter('ignore')\nchild = os.fork()\n"
        "if child == 0:\n"
        "    shared.cancel(sequence); shared.close()\n"
        "    try:\n        shared.add(Sequence([1]))\n"
        "    except Exception as error:\n        print(error, flush=True)\n"
        "    os._exit(0)\n"
        "os.waitpid(child, 0)\nshared.close()\n"
    )
    done = subprocess.run([sys.executable, "-c", code, SUPPORT], capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    assert "loaded before the process forked" in done.stdout and "spawn" in done.stdout


def test_a_forgotten_sequence_leaves_nothing_behind() -> None:
    shared, _ = make_shared()
    for i in range(20):
        sequence = Sequence([i], SamplingParams(temperature=0, max_tokens=2))
        shared.add(sequence)
        shared.wait(sequence, 5)
    until(lambda: shared._is_idle)
    assert shared._watches == {} and not shared._changes
    gc.collect()
    shared.close()
