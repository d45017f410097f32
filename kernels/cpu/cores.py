"""How many threads suit this machine, and why: its cores, which of them this process may use, and a container's quota.

Hyper-threads share the vector units and the way to memory, so a core counts once; where some cores are slow ones
(Intel's E cores, ARM's little ones), only the fast count, because a step ends with its slowest thread.
"""

from __future__ import annotations

import math
import os
import platform
import sys
from dataclasses import dataclass
from pathlib import Path

from .limits import cpu_quota

MAX_THREADS = 64
SYSTEM = Path("/sys/devices")


@dataclass(frozen=True, slots=True)
class Cores:
    """physical, logical: cores, and hyper-threads on them, of the whole machine. fast: physical ones that are not slower
    than others. allowed: logical ones that this process may use. usable: fast physical ones among these. quota: CPUs'
    worth of time, infinity for no limit.
    """

    physical: int
    logical: int
    fast: int
    allowed: int
    usable: int
    quota: float


@dataclass(frozen=True, slots=True)
class ThreadChoice:
    """A number of threads, and in a few words what decided it."""

    count: int
    reason: str


def get_cores() -> Cores:
    """Ask the system."""
    import psutil

    logical = os.cpu_count() or 1
    physical = psutil.cpu_count(logical=False) or logical
    allowed = set(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
    cpus = set(range(logical)) if allowed is None else allowed
    fast = _fast_cpus()
    fast_physical = min(physical, _count_cores(fast) if fast else _fast_cores_of_macos() or physical)
    usable = min(fast_physical, _count_cores(cpus & fast if fast & cpus else cpus))
    return Cores(physical, logical, fast_physical, len(cpus), usable, cpu_quota())


def choose_threads(cores: Cores | None = None) -> ThreadChoice:
    """The default number of threads: never more than the quota, never none."""
    cores = cores or get_cores()
    kind = "fast physical" if cores.fast < cores.physical else "physical"
    count, reason = cores.fast, f"one per {kind} core"
    if cores.usable < count:
        count, reason = cores.usable, f"one per {kind} core that this process may use"
    if cores.quota < count:
        count, reason = math.floor(cores.quota), f"the container may use {cores.quota:g} CPUs"
    if count > MAX_THREADS:
        count, reason = MAX_THREADS, "the most that pays"
    return ThreadChoice(max(1, count), reason)


def cpu_name() -> str:
    """What the processor calls itself."""
    try:
        for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip() in ("model name", "Model", "Hardware") and value.strip():
                return value.strip()
    except OSError:
        pass
    return _sysctl_text("machdep.cpu.brand_string") or platform.processor() or platform.machine() or "unknown"


def _count_cores(cpus: set[int]) -> int:
    """Physical cores that these logical ones lie on; each counts where the system does not say."""
    return len({_core_of(cpu) for cpu in cpus})


def _core_of(cpu: int) -> str:
    try:
        return (SYSTEM / f"system/cpu/cpu{cpu}/topology/thread_siblings_list").read_text().strip()
    except OSError:
        return f"cpu {cpu}"


def _fast_cpus() -> set[int]:
    """Logical CPUs on fast cores, by Linux; nothing where all are alike or the system does not say."""
    try:
        return _numbers((SYSTEM / "cpu_core/cpus").read_text())  # Intel with P and E cores
    except (OSError, ValueError):
        pass
    capacities: dict[int, int] = {}
    for folder in (SYSTEM / "system/cpu").glob("cpu[0-9]*"):
        try:
            capacities[int(folder.name[3:])] = int((folder / "cpu_capacity").read_text())  # ARM
        except (OSError, ValueError):
            continue
    # Of three kinds the middle one is fast enough to help.
    return {cpu for cpu, capacity in capacities.items() if 2 * capacity > max(capacities.values())}


def _numbers(text: str) -> set[int]:
    """Read "0-3,8"."""
    found: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


def _fast_cores_of_macos() -> int:
    return _sysctl_int("hw.perflevel0.physicalcpu")


def _sysctl(name: str, room: int) -> bytes:
    """A value that macOS keeps, b"" elsewhere."""
    if sys.platform != "darwin":
        return b""
    import ctypes

    value, size = ctypes.create_string_buffer(room), ctypes.c_size_t(room)
    failed = ctypes.CDLL(None).sysctlbyname(name.encode(), value, ctypes.byref(size), None, ctypes.c_size_t(0))
    return b"" if failed else value.raw[: size.value]


def _sysctl_int(name: str) -> int:
    return int.from_bytes(_sysctl(name, 8), "little")


def _sysctl_text(name: str) -> str:
    return _sysctl(name, 256).rstrip(b"\0").decode(errors="replace")
