"""Progress of slow stages (download, compile, load) on stderr: a bar on a terminal, one plain line a stage elsewhere.

A stage that is over in half a second is not worth a word, nor the import of rich. It knows nothing of what it counts.
Next hop: whoever calls it as `progress(stage, done, total)`.
"""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING

from .terminal import human_bytes, is_terminal

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

QUIET_S = 0.5
# The first word of a stage says its kind ("download smollm2"). These are slow whenever they have anything to do.
SLOW_KINDS = ("download", "compile", "wait")
BYTE_KINDS = ("download", "verify", "unpack", "pack")
TITLES = {
    "compile kernels": "compile the kernels for this CPU (once)",
    "load": "load the model",
    "bench": "measure",
    "pack": "pack the weights",
}


class Progress:
    """Callable `(stage, done, total)`, a context manager so that the bar goes whatever happens. total 0 is unknown."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._started: dict[str, float] = {}
        self._announced: set[str] = set()
        self._bar: Bar | None = None
        self._tasks: dict[str, TaskID] = {}

    def __call__(self, stage: str, done: int, total: int) -> None:
        with self._lock:  # a download reports from its own thread
            if stage in self._announced or self._is_worth_a_word(stage, done, total):
                self._show(stage, done, total)
                self._announced.add(stage)

    def close(self) -> None:
        """Take the bar off the screen."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
            self._tasks.clear()

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _is_worth_a_word(self, stage: str, done: int, total: int) -> bool:
        now = time.monotonic()
        started = self._started.setdefault(stage, now)
        has_more = total <= 0 or done < total
        return has_more and (_kind(stage) in SLOW_KINDS or now - started >= QUIET_S)

    def _show(self, stage: str, done: int, total: int) -> None:
        if is_terminal(sys.stderr):
            self._draw(stage, done, total)
        elif stage not in self._announced:
            print(f"edgellm: {_title(stage)}{_amount(stage, total)}", file=sys.stderr, flush=True)

    def _draw(self, stage: str, done: int, total: int) -> None:
        if self._bar is None:
            self._bar = _make_bar()
            self._bar.start()
        if stage not in self._tasks:
            amount = _amount(stage, total)
            self._tasks[stage] = self._bar.add_task(_title(stage), total=total or None, completed=done, amount=amount)
        finished = total > 0 and done >= total
        self._bar.update(self._tasks[stage], completed=done, total=total or None, visible=not finished)


def _kind(stage: str) -> str:
    return stage.partition(" ")[0]


def _title(stage: str) -> str:
    return TITLES.get(stage, stage)


def _amount(stage: str, total: int) -> str:
    return f" ({human_bytes(total)})" if _kind(stage) in BYTE_KINDS and total > 0 else ""


def _make_bar() -> Bar:
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("{task.description}{task.fields[amount]}", markup=False),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeRemainingColumn(),
    )
    return Bar(*columns, console=Console(stderr=True), transient=True)
