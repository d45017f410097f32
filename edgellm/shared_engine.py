"""One engine for many threads: whoever waits for a token steps it, for everyone.

Knows threads and turns, not what a step does. Next hop: `engine.py`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from .engine import Engine
from .errors import EdgeLLMError
from .sequence import Sequence

Result = TypeVar("Result")


class SharedEngine:
    """One Engine for many threads: whoever waits for a token steps it, for everyone.

    A change that comes while a step runs (also from a garbage collector, in any thread) is done right after that step,
    by the thread that steps. No lock is held while a step runs or between steps.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._turn = threading.Condition(threading.RLock())
        self._busy_thread: int | None = None
        self._changes: list[Callable[[], None]] = []

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence. Raises like Engine.add, at once."""
        self.engine.check(sequence)
        self._change(lambda: self._add(sequence))

    def cancel(self, sequence: Sequence, reason: str = "cancelled") -> None:
        """End a sequence; its slot is free before the next step."""
        if not sequence.is_finished:
            self._change(lambda: self.engine.cancel(sequence, reason))

    def wait(self, sequence: Sequence, num_seen: int) -> None:
        """Return once `sequence` has more than `num_seen` generated ids ready or has ended, stepping if nobody else does."""
        while not self._has_news(sequence, num_seen):
            self._step_for(sequence, num_seen)

    def call(self, function: Callable[[], Result]) -> Result:
        """Return what `function` returns, called between two steps. Raises what it raises."""
        results: list[Result] = []
        errors: list[BaseException] = []

        def change() -> None:
            try:
                results.append(function())
            except BaseException as error:  # for the thread that asked, not for the one that steps
                errors.append(error)

        self._change(change)
        with self._turn:
            while not results and not errors:
                self._turn.wait()
        if errors:
            raise errors[0]
        return results[0]

    def close(self) -> None:
        """Close the engine, after the step that runs if there is one. Sequences in flight end as cancelled."""
        self._change(self.engine.close)
        with self._turn:
            while self._busy_thread not in (None, threading.get_ident()):
                self._turn.wait()

    def _add(self, sequence: Sequence) -> None:
        try:
            self.engine.add(sequence)
        except EdgeLLMError as error:  # closed meanwhile: for the thread that waits, not for the one that steps
            sequence.finish("error", error)

    @staticmethod
    def _has_news(sequence: Sequence, num_seen: int) -> bool:
        return sequence.is_finished or sequence.num_ready > num_seen

    def _step_for(self, sequence: Sequence, num_seen: int) -> None:
        me = threading.get_ident()
        try:
            with self._turn:
                while self._busy_thread is not None and not self._has_news(sequence, num_seen):
                    self._turn.wait()
                if self._has_news(sequence, num_seen):
                    return
                self._busy_thread = (
                    me  # the only record of who steps, so that Ctrl-C at any point leaves no lock behind
                )
            self.engine.step()
        finally:
            if self._busy_thread == me:
                self._finish_turn()

    def _change(self, change: Callable[[], None]) -> None:
        with self._turn:
            self._changes.append(change)
            if self._busy_thread is None:
                self._busy_thread = threading.get_ident()
                self._finish_turn()

    def _finish_turn(self) -> None:
        with self._turn:
            try:
                while self._changes:
                    self._changes.pop(0)()
            finally:
                self._busy_thread = None
                self._turn.notify_all()
