"""How a server ends: nothing new is taken in, what runs may finish for a while, then it is cut. Asked again, it cuts at once.

Knows requests only by their number. Next hop: `serving.py`, which looks here several times a second; `answering.py` cuts.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Protocol

log = logging.getLogger("edgellm.server")

CUT_S = 2.0
"""How long those that were cut may take to say so."""


class Endable(Protocol):
    """What ends: see answering.Desk."""

    is_ending: bool

    @property
    def num_open(self) -> int: ...

    def cut(self) -> None: ...


class Ending:
    """limit_s: how long requests may take to finish. clock: seconds, for tests."""

    def __init__(self, desk: Endable, limit_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.num_asked = 0
        self._desk, self._limit_s, self._clock = desk, limit_s, clock
        self._end_s: float | None = None
        self._is_cut = False

    def ask(self) -> None:
        """End, or if that was said before, end now. Any thread may say it, and a signal's handler."""
        self.num_asked += 1

    def is_over(self) -> bool:
        """Go on with ending, if that was asked for. -> True once nothing is on its way any more."""
        if not self.num_asked:
            return False
        if self._end_s is None:
            self._desk.is_ending, self._end_s = True, self._clock() + self._limit_s
            log.info("ending: %d requests may finish within %g seconds", self._desk.num_open, self._limit_s)
        if not self._desk.num_open:
            return True
        is_late = self._clock() >= self._end_s
        if self._is_cut:
            return is_late
        if is_late or self.num_asked > 1:
            log.warning("ending: %d requests are cut", self._desk.num_open)
            self._desk.cut()
            self._is_cut, self._end_s = True, self._clock() + CUT_S
        return False
