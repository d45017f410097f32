"""What a container allows this process: CPU time and memory, by Linux's control groups, version 2 or 1.

Infinity where nothing is limited or nothing is known. The limits of all groups above this process's own hold as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT, OWN = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


def cpu_quota() -> float:
    """CPUs' worth of time that this process may use."""
    return min(_ask("cpu", _quota_v2, _quota_v1), default=math.inf)


def memory_left() -> float:
    """Bytes that this process may still take; what the system can drop (pages of files) counts as free."""
    return min(_ask("memory", _memory_v2, _memory_v1), default=math.inf)


def _ask(controller: str, v2: Callable[[Path], float], v1: Callable[[Path], float]) -> Iterator[float]:
    for folder, is_v2 in _folders(controller):
        try:
            yield (v2 if is_v2 else v1)(folder)
        except (OSError, ValueError):
            continue


def _folders(controller: str) -> Iterator[tuple[Path, bool]]:
    """Folders of the groups that hold for this process, and whether they are version 2's.

    In a container the path may be the host's and lead nowhere: then the root is the container's own group.
    """
    yield ROOT, True
    yield ROOT / controller, False
    try:
        lines = OWN.read_text().splitlines()
    except (OSError, ValueError):
        return
    for line in lines:
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if controllers and controller not in controllers.split(","):
            continue
        base = ROOT / controllers
        parts = [part for part in path.split("/") if part not in ("", "..")]
        for depth in range(1, len(parts) + 1):
            yield base.joinpath(*parts[:depth]), not controllers


def _quota_v2(folder: Path) -> float:
    quota, period = (folder / "cpu.max").read_text().split()
    return math.inf if quota == "max" else int(quota) / int(period)


def _quota_v1(folder: Path) -> float:
    quota = int((folder / "cpu.cfs_quota_us").read_text())
    return math.inf if quota <= 0 else quota / int((folder / "cpu.cfs_period_us").read_text())


def _memory_v2(folder: Path) -> float:
    limit = (folder / "memory.max").read_text().strip()
    if limit == "max":
        return math.inf
    return int(limit) - int((folder / "memory.current").read_text()) + _droppable(folder, "")


def _memory_v1(folder: Path) -> float:
    limit = int((folder / "memory.limit_in_bytes").read_text())
    if limit >= 1 << 60:  # no limit is the largest multiple of a page
        return math.inf
    return limit - int((folder / "memory.usage_in_bytes").read_text()) + _droppable(folder, "total_")


def _droppable(folder: Path, prefix: str) -> int:
    """Bytes of file pages, which count as used."""
    lines = [line.split() for line in (folder / "memory.stat").read_text().splitlines()]
    wanted = (f"{prefix}inactive_file", f"{prefix}active_file")
    return sum(int(words[1]) for words in lines if len(words) == 2 and words[0] in wanted)
