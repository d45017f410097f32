"""SharedEngine.call: how a saved state is taken while others wait for tokens."""

from __future__ import annotations

import threading

import pytest
from scripted_model import make_engine

from edgellm.config import SamplingParams
from edgellm.errors import OptionError
from edgellm.sequence import Sequence
from edgellm.shared_engine import SharedEngine


def test_a_call_comes_between_two_steps_and_its_error_goes_to_the_caller() -> None:
    engine, backend = make_engine()
    shared, backend.gate = SharedEngine(engine), threading.Event()
    sequence = Sequence([1, 2, 3], SamplingParams(max_tokens=3, temperature=0.0))
    shared.add(sequence)
    stepping = threading.Thread(target=shared.wait, args=(sequence, 2))
    stepping.start()
    while shared._busy_thread is None:
        pass
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
    asking.join(20)
    stepping.join(20)
    assert results == [results[0], "refused"] and results[0] in (1, 2, 3)
    assert sequence.num_output == 3 and shared.call(lambda: 7) == 7
    shared.close()
