"""Load a model while the program goes on: in a thread, with a future that tells when, and that can be cancelled.

Knows nothing of models. Next hop: `llm.py`, whose `load` runs there.
"""

from __future__ import annotations

import atexit
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from typing import Protocol, TypeVar

Progress = Callable[[str, int, int], None]
_END_S = 10.0
"""How long the end of the program waits for a load that is given up."""


class Closable(Protocol):
    """What is loaded."""

    def close(self) -> None: ...


Loaded = TypeVar("Loaded", bound=Closable)
_loading: weakref.WeakKeyDictionary[threading.Thread, Future[object]] = weakref.WeakKeyDictionary()


def load_in_background(
    load: Callable[[Progress], Loaded], progress: Progress | None, on_ready: Callable[[Loaded], None] | None
) -> Future[Loaded]:
    """Call load(progress) in a thread. -> a future of what it returns or raises.

    Cancelled, the load ends at its next step, and what was loaded by then is closed. progress and on_ready are called in that
    thread (progress for downloads and compilers perhaps in others); what they raise, load raises.
    """
    future: Future[Loaded] = Future()
    thread = threading.Thread(target=_run, args=(load, progress, on_ready, future), name="edgellm-load", daemon=True)
    _loading[thread] = future  # type: ignore[assignment]
    thread.start()
    return future


def _run(
    load: Callable[[Progress], Loaded],
    progress: Progress | None,
    on_ready: Callable[[Loaded], None] | None,
    future: Future[Loaded],
) -> None:
    me = threading.current_thread()

    def step(stage: str, done: int, total: int) -> None:
        if future.cancelled():
            if threading.current_thread() is me:
                raise CancelledError
            return
        if progress is not None:
            progress(stage, done, total)

    try:
        loaded = load(step)
    except BaseException as error:
        if future.set_running_or_notify_cancel():  # only now "running": until here it can be cancelled
            future.set_exception(error)
        return
    if not future.set_running_or_notify_cancel():
        loaded.close()
        return
    if on_ready is not None:
        try:
            on_ready(loaded)
        except BaseException as error:
            loaded.close()
            future.set_exception(error)
            return
    future.set_result(loaded)


def _give_up() -> None:
    """At the end of the program: a thread that loads while the interpreter takes memory down would end in a crash."""
    for thread, future in list(_loading.items()):
        future.cancel()
        thread.join(_END_S)


atexit.register(_give_up)
