"""Loading in the background: the result, the error, cancelling, and a program that ends meanwhile."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import pytest
from tiny_models import write_tiny

from edgellm import LLM
from edgellm.background import load_in_background
from edgellm.errors import ModelFileError, OptionError

PATIENCE_S = 60


class Thing:
    def __init__(self) -> None:
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True


def wait_for_threads() -> None:
    end = time.monotonic() + PATIENCE_S
    while [thread for thread in threading.enumerate() if thread.name == "edgellm-load"]:
        assert time.monotonic() < end
        time.sleep(0.001)


def test_a_model_arrives_and_so_do_errors(tmp_path: Path) -> None:
    path, ready, steps = write_tiny(tmp_path / "m.gguf", formats="Q8_0"), [], []
    loading = LLM.load_in_background(path, threads=1, on_ready=ready.append, progress=lambda *step: steps.append(step))
    with loading.result(PATIENCE_S) as llm:
        assert ready == [llm] and llm.generate([5], max_tokens=2, ignore_eos=True).token_ids
    for options, error in (({"threads": 0}, OptionError), ({}, ModelFileError)):
        with pytest.raises(error):
            LLM.load_in_background(tmp_path / "nothing.gguf", **options).result(PATIENCE_S)
    wait_for_threads()


def test_cancelling_ends_it_at_the_next_step() -> None:
    begun = threading.Event()

    def load(progress: Any) -> Thing:
        begun.set()
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            progress("load", 0, 1)
        raise AssertionError("nobody ended it")

    loading = load_in_background(load, None, None)
    assert begun.wait(PATIENCE_S) and loading.cancel()
    with pytest.raises(CancelledError):
        loading.result(0)
    wait_for_threads()


def test_what_is_loaded_too_late_is_closed() -> None:
    gate, begun, thing, told = threading.Event(), threading.Event(), Thing(), []

    def load(progress: Any) -> Thing:
        begun.set()
        assert gate.wait(PATIENCE_S)
        return thing

    loading = load_in_background(load, None, told.append)
    assert begun.wait(PATIENCE_S) and loading.cancel()
    gate.set()
    wait_for_threads()
    assert thing.is_closed and told == []


def test_an_error_of_on_ready_closes_the_model() -> None:
    thing = Thing()
    loading = load_in_background(lambda progress: thing, None, lambda _: 1 / 0)  # type: ignore[arg-type, return-value]
    with pytest.raises(ZeroDivisionError):
        loading.result(PATIENCE_S)
    assert thing.is_closed


def test_a_program_may_end_while_a_model_loads() -> None:
    code = (
        "import time\nfrom edgellm.background import load_in_background\n"
        "def load(progress):\n    while True:\n        progress('load', 0, 1)\n        time.sleep(0.001)\n"
        "load_in_background(load, None, None)\ntime.sleep(0.05)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_S)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
