"""Waiting for another thread in a way that Ctrl-C can end. Knows nothing of what is waited for."""

from __future__ import annotations

import threading

_LOOK_S = 0.05
"""How often the main thread looks for signals: Windows interrupts no wait for one, others may hand it to another thread."""


class Gate:
    """Opened once, by anyone; one thread waits for it. Cheaper than an Event: a token of a small model takes milliseconds."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def open(self) -> None:
        """Let the waiting thread go on; a gate may be opened before anyone waits."""
        if self._lock.locked():
            self._lock.release()

    def wait(self) -> None:
        """Return once it is open. In the main thread a signal's handler runs meanwhile, and what it raises comes out here."""
        if threading.current_thread() is not threading.main_thread():
            self._lock.acquire()
            return
        while not self._lock.acquire(timeout=_LOOK_S):
            pass
