"""One engine for many threads: a thread of its own runs it, anybody may submit, cancel and wait.

Knows threads, not what a step does. Next hops: `engine.py`; `stream.py` and `async_stream.py` read what comes.
"""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import TypeVar

from .engine import Engine
from .errors import EdgeLLMError
from .sequence import Sequence
from .waiting import Gate

Result = TypeVar("Result")

_with_threads: weakref.WeakSet[SharedEngine] = weakref.WeakSet()


class _Watch:
    """Who wants to hear of a sequence: threads behind gates, each with how many ids it has seen, and a function.

    seen: what they were told last.
    """

    def __init__(self, on_news: Callable[[], None] | None) -> None:
        self.on_news = on_news
        self.gates: list[tuple[int, Gate]] = []
        self.seen: tuple[int, int, bool] | None = None

    def tell(self, num_ready: int, is_all: bool) -> None:
        """Call the function, and open the gates of all, or of those who have not seen num_ready ids."""
        if self.on_news is not None:
            self.on_news()
        waiting = []
        while self.gates:  # one may come at any time; a thread that finds its news looks before it waits
            num_seen, gate = self.gates.pop()
            if is_all or num_ready > num_seen:
                gate.open()
            else:
                waiting.append((num_seen, gate))
        self.gates += waiting


class SharedEngine:
    """One Engine for many threads. Only its own thread touches it; that starts when there is something to do, and sleeps
    when there is nothing.

    What others want done is a change: done by that thread between two steps, in order. Ctrl-C can come at any point of
    their code and leaves the engine whole. A garbage collector may ask for changes too, in any thread.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        # May be entered again by a garbage collector that ends a stream.
        self._wake = threading.Condition(threading.RLock())
        self._changes: deque[Callable[[], None]] = deque()
        self._watches: dict[Sequence, _Watch] = {}
        self._thread: threading.Thread | None = None
        self._is_idle = False
        self._is_closed = False
        self._is_stopping = False
        self._has_ended = False
        self._process_id = os.getpid()

    def add(self, sequence: Sequence, on_news: Callable[[], None] | None = None) -> None:
        """Queue a sequence. Raises like Engine.add, at once.

        on_news: called in the engine's thread whenever the sequence has more ids ready, has moved on in its prompt or has
        ended; it must be quick, must not raise, and must not hold on to the model.
        """
        self._require_own_process()
        self.engine.check(sequence)
        if self._is_stopping and not self._is_closed:
            raise EdgeLLMError("the program is ending, so nothing new can be begun")
        self._submit(lambda: self._add(sequence, _Watch(on_news)))

    def cancel(self, sequence: Sequence, reason: str = "cancelled", *, wait: bool = False) -> None:
        """End a sequence. A step that is for nothing then ends early; its slot is free before the next one.

        wait: return only when it is free, at most a step of others later. Never from a destructor.
        """
        if sequence.is_finished or os.getpid() != self._process_id:
            return
        self.engine.interrupt(sequence)
        if wait:
            self.call(lambda: self.engine.cancel(sequence, reason))
        else:
            self._submit(lambda: self.engine.cancel(sequence, reason))

    def wait(self, sequence: Sequence, num_seen: int, on_prefill: Callable[[], None] | None = None) -> None:
        """Return once `sequence` has more than `num_seen` generated ids ready or has ended. Ctrl-C is seen meanwhile.

        on_prefill: called in this thread whenever the prompt has moved on.
        """
        while not self._has_news(sequence, num_seen):
            gate, watch = Gate(), self._watches.get(sequence)
            if watch is None:  # not even queued: that is done in order, so it is when this is
                self.call(lambda: None)
                continue
            watch.gates.append((num_seen, gate))
            if self._has_news(sequence, num_seen):
                return
            gate.wait()
            if on_prefill is not None:
                on_prefill()

    def note_read(self, sequence: Sequence, num_read: int) -> None:
        """Say how far a reader has come: a sequence that was too far ahead goes on once half of that has been read."""
        sequence.num_read = num_read
        limit = sequence.max_ahead
        if self._is_idle and (limit is None or sequence.num_ready - num_read <= limit // 2):
            with self._wake:
                self._wake.notify_all()

    def call(self, function: Callable[[], Result]) -> Result:
        """Return what `function` returns, called between two steps. Raises what it raises."""
        self._require_own_process()
        results: list[Result] = []
        errors: list[BaseException] = []
        gate = Gate()

        def change() -> None:
            try:
                results.append(function())
            except BaseException as error:  # for the thread that asked
                errors.append(error)
            finally:
                gate.open()

        self._submit(change)
        gate.wait()
        if errors:
            raise errors[0]
        return results[0]

    def close(self, then: Callable[[], None] | None = None) -> None:
        """Close the engine and end its thread. Sequences in flight end with an error. Harmless when repeated.

        then: what else to close, once nothing uses the engine. In the engine's own thread, where a garbage collector may
        call it, this returns before that is done.
        """
        if self._is_closed or os.getpid() != self._process_id:
            return  # a forked child has no thread to end, and its parent goes on

        def change() -> None:
            self.engine.close()
            if then is not None:
                then()

        self._is_closed = True
        self.engine.interrupt()
        if self._thread is threading.current_thread():
            self._submit(change)
        elif self._thread is None or self._has_ended:
            change()
        else:
            self.call(change)
        self.stop()

    def stop(self) -> None:
        """End the thread, with the step that is on if there is one; what is submitted by then is done."""
        self._is_stopping = True
        self.engine.interrupt()
        with self._wake:
            self._wake.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _submit(self, change: Callable[[], None]) -> None:
        with self._wake:
            if not self._has_ended:
                self._changes.append(change)
                if self._thread is None:
                    self._thread = threading.Thread(target=self._live, name="edgellm-engine", daemon=True)
                    _with_threads.add(self)
                    self._thread.start()
                self._wake.notify_all()
                return
        change()  # nothing runs any more

    @staticmethod
    def _has_news(sequence: Sequence, num_seen: int) -> bool:
        return sequence.is_finished or sequence.num_ready > num_seen

    def _require_own_process(self) -> None:
        if os.getpid() != self._process_id:
            raise EdgeLLMError(
                "this model was loaded before the process forked, and its threads did not come along; load it in the "
                'child, or start the child with multiprocessing\'s "spawn"'
            )

    # ---- in the engine's thread ----
    def _live(self) -> None:
        while self._sleep():
            self._do_changes()
            if self.engine.can_run and not self._is_stopping:
                try:
                    self.engine.step()
                except BaseException as error:  # for those who wait for an answer; this thread must live
                    self.engine.fail(error)
            self._tell()

    def _sleep(self) -> bool:
        """Wait for something to do. -> False when it is time to end."""
        with self._wake:
            self._is_idle = True  # before the look at what can run: a reader that catches up sees one of the two
            while not (self._changes or self._is_stopping or self.engine.can_run):
                self._wake.wait()
            self._is_idle = False
            self._has_ended = self._is_stopping and not self._changes
            return not self._has_ended

    def _do_changes(self) -> None:
        while self._changes:
            try:
                self._changes.popleft()()
            except BaseException as error:
                self.engine.fail(error)

    def _add(self, sequence: Sequence, watch: _Watch) -> None:
        self._watches[sequence] = watch
        try:
            self.engine.add(sequence)
        except EdgeLLMError as error:  # closed meanwhile
            sequence.finish("error", error)

    def _tell(self) -> None:
        for sequence, watch in list(self._watches.items()):
            ended = sequence.is_finished
            news = (sequence.num_ready, 0 if sequence.num_output else sequence.num_cached, ended)
            if news != watch.seen:
                watch.seen = news
                if ended:
                    del self._watches[sequence]
                watch.tell(sequence.num_ready, ended or not sequence.num_output)


def _stop_all() -> None:
    for shared in list(_with_threads):
        shared.stop()


atexit.register(_stop_all)  # a thread that computes while the interpreter takes memory down would end in a crash
