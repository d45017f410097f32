"""N threads that walk tapes together. They stay in machine code; idle ones sleep in Python until a step begins.

The machine half is `walk.py`. Knows no op: a tape is stages of records with addresses in them.
"""

from __future__ import annotations

import ctypes
import math
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import slots
from .cores import choose_threads
from .memory import address, aligned
from .objects import CHUNK_FUNCTION
from .tape import Tape

KERNELS = ("begin", "walk", "work", "nothing")
_SPINS = 200  # pauses before yielding: 2000 are 57 us, which both threads pay when they share a core
_PATIENCE = 20_000  # rounds of waiting between steps before a thread sleeps: some milliseconds
_AWAY_S = 0.1  # how long a thread stays away that keeps losing its core in the middle of a chunk
_AGAIN_S = 0.05  # twice within this time: another program wants the core; once is an accident
_LOST_CORE_S = 0.0009  # a decode chunk that takes longer was interrupted
_LOST_CORE_LONG_S = 0.05  # the same for anything else: a prefill chunk may take milliseconds


def default_threads() -> int:
    """How many threads suit this machine; `cores.py` says why."""
    return choose_threads().count


def _live(thread: int, ctx: NDArray[np.int64], alarm: threading.Semaphore, work: Callable[..., None]) -> None:
    mine, lost_core_s = slots.PARKED + 8 * thread, -math.inf
    while not ctx[slots.QUIT]:
        work(0, address(ctx), thread, 0)
        if ctx[mine] == slots.AWAY:
            before, lost_core_s = lost_core_s, time.monotonic()
            if lost_core_s - before < _AGAIN_S:
                time.sleep(_AWAY_S)
        elif not ctx[slots.QUIT]:
            alarm.acquire()


def _stop(ctx: NDArray[np.int64], alarms: Sequence[threading.Semaphore], workers: Sequence[threading.Thread]) -> None:
    ctx[slots.QUIT] = 1
    for alarm in alarms:
        alarm.release()
    for worker in workers:
        worker.join()


def _ticks_per_second() -> float:
    """x86's time stamp counter runs at about the nominal clock; ARM says its rate, which 1e9 bounds from above."""
    try:
        import psutil

        mhz = psutil.cpu_freq().max or psutil.cpu_freq().current
        return float(mhz) * 1e6 if mhz > 100 else 2e9
    except (AttributeError, OSError, NotImplementedError, RuntimeError):
        return 2e9


class Threads:
    """A team of `count` threads, the caller's own included. Closed by close(), garbage collection or process exit."""

    def __init__(self, count: int, kernels: dict[str, int], scratch_bytes: int) -> None:
        self.count = count
        self.ctx: NDArray[np.int64] = aligned(8 * slots.CONTEXT_WORDS).view(np.int64)
        self._scratch = aligned(count * scratch_bytes)
        self.ctx[slots.THREADS], self.ctx[slots.SPINS], self.ctx[slots.PATIENCE] = count, _SPINS, _PATIENCE
        ticks_per_s = _ticks_per_second()
        self._patience = (int(_LOST_CORE_LONG_S * ticks_per_s), int(_LOST_CORE_S * ticks_per_s))
        self._view, self._here = self.ctx.data, address(self.ctx)
        self.ctx[slots.STATE] = (slots.IDLE << 32) + slots.BIAS
        self.ctx[slots.SCRATCH], self.ctx[slots.SCRATCH_BYTES] = address(self._scratch), scratch_bytes
        self._begin, self._walk, work = (CHUNK_FUNCTION(kernels[n]) for n in ("begin", "walk", "work"))
        self._alarms = [threading.Semaphore(0) for _ in range(count)]
        self._workers = [
            threading.Thread(target=_live, args=(t, self.ctx, self._alarms[t], work), name=f"edgellm-{t}", daemon=True)
            for t in range(1, count)
        ]
        for worker in self._workers:
            worker.start()
        self.close = weakref.finalize(self, _stop, self.ctx, self._alarms, self._workers)

    def run(self, tape: Tape, tokens: int = 0, logit_tokens: int = 0) -> None:
        """Walk a tape once, for a batch of so many rows. One caller at a time."""
        ctx, here = self._view, self._here
        ctx[slots.TOKENS], ctx[slots.LOGIT_TOKENS] = tokens, logit_tokens
        ctx[slots.PATIENCE_TICKS] = self._patience[0 < tokens <= 4]
        ctx[slots.STAGES], ctx[slots.NUM_STAGES] = tape.start, len(tape.stages)
        self._begin(0, here, 0, 0)
        for t in range(1, self.count):
            if ctx[slots.PARKED + 8 * t] == slots.CALLED:
                self._alarms[t].release()
        self._walk(0, here, 0, 0)


def run_chunk(kernel: int, record: NDArray[np.int64], ctx: NDArray[np.int64] | None = None, chunk: int = 0) -> None:
    """Call one chunk of a kernel from this thread: for tests and tools."""
    CHUNK_FUNCTION(kernel)(address(record), address(ctx) if ctx is not None else 0, 0, chunk)


def tile_function(operands: int) -> Any:
    """C type of a kernel with that many int64 operands."""
    return ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * operands)
