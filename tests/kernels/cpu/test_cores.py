"""How many threads suit a machine, and what a container allows: made-up machines, described as Linux describes them."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import psutil
import pytest

from edgellm.kernels.cpu import cores, limits, threads


class System:
    """A machine to be described. Files lie below `root`, as /sys and /proc would have them."""

    def __init__(self, root: Path, patch: pytest.MonkeyPatch) -> None:
        self.physical: int | None = 8
        self.logical = 16
        self.allowed: set[int] | None = None
        self._root, self._patch = root, patch
        patch.setattr(psutil, "cpu_count", lambda logical=True: self.logical if logical else self.physical)
        patch.setattr(os, "cpu_count", lambda: self.logical)
        patch.setattr(os, "sched_getaffinity", lambda _: self.allowed or set(range(self.logical)), raising=False)
        patch.setattr(cores, "SYSTEM", root / "devices")
        patch.setattr(limits, "ROOT", root / "cgroup")
        patch.setattr(limits, "OWN", root / "self_cgroup")

    def write(self, files: dict[str, str]) -> None:
        for name, text in files.items():
            path = self._root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def pair(self) -> None:
        """Hyper-threads: core i has the logical ones i and i + physical."""
        assert self.physical is not None
        for cpu in range(self.logical):
            first = cpu % self.physical
            siblings = f"devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"
            self.write({siblings: f"{first},{first + self.physical}\n"})


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> System:
    return System(tmp_path, monkeypatch)


def choice() -> tuple[int, str]:
    chosen = cores.choose_threads()
    assert threads.default_threads() == chosen.count
    return chosen.count, chosen.reason


# ---- cores ----
@pytest.mark.parametrize(
    ("physical", "logical", "allowed", "count", "reason"),
    [
        (8, 16, None, 8, "one per physical core"),
        (8, 16, {0, 5, 7}, 3, "one per physical core that this process may use"),
        (8, 16, {4}, 1, "one per physical core that this process may use"),
        (8, 16, {0, 1, 8, 9}, 2, "one per physical core that this process may use"),  # two cores, both threads of each
        (1, 1, None, 1, "one per physical core"),
        (128, 256, None, 64, "the most that pays"),
    ],
)
def test_one_thread_per_core(
    system: System, physical: int, logical: int, allowed: set[int] | None, count: int, reason: str
) -> None:
    system.physical, system.logical, system.allowed = physical, logical, allowed
    system.pair()
    assert choice() == (count, reason)


def test_a_system_that_knows_little(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    system.physical = None
    assert choice()[0] == 16
    system.physical = 4
    monkeypatch.delattr(os, "sched_getaffinity")  # macOS and Windows
    assert choice()[0] == 4


def test_slow_cores_do_not_count_on_intel(system: System) -> None:
    """Six P cores with two threads each, eight E cores."""
    system.physical, system.logical = 14, 20
    for cpu in range(20):
        siblings = f"{cpu // 2 * 2}-{cpu // 2 * 2 + 1}" if cpu < 12 else str(cpu)
        system.write({f"devices/system/cpu/cpu{cpu}/topology/thread_siblings_list": siblings})
    system.write({"devices/cpu_core/cpus": "0-11\n", "devices/cpu_atom/cpus": "12-19\n"})
    assert choice() == (6, "one per fast physical core")
    system.allowed = {0, 1, 2, 12, 13}
    assert choice() == (2, "one per fast physical core that this process may use")
    system.allowed = {12, 13, 14}
    assert choice()[0] == 3, "slow ones are better than none"


def test_little_cores_do_not_count_on_arm(system: System) -> None:
    system.physical = system.logical = 8
    for cpu in range(8):
        system.write({f"devices/system/cpu/cpu{cpu}/cpu_capacity": "380" if cpu < 4 else "790" if cpu < 7 else "1024"})
    assert choice() == (4, "one per fast physical core")


# ---- containers ----
@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({}, math.inf),
        ({"cgroup/cpu.max": "max 100000\n"}, math.inf),
        ({"cgroup/cpu.max": "250000 100000\n"}, 2.5),
        ({"cgroup/cpu.max": "nonsense"}, math.inf),
        ({"cgroup/cpu.max": ""}, math.inf),
        ({"self_cgroup": "0::/a/b\n", "cgroup/a/b/cpu.max": "max 1000", "cgroup/a/cpu.max": "3000 1000"}, 3),
        ({"self_cgroup": "0::/../host/path\n", "cgroup/cpu.max": "4000 1000"}, 4),
        ({"cgroup/cpu/cpu.cfs_quota_us": "-1\n", "cgroup/cpu/cpu.cfs_period_us": "100000\n"}, math.inf),
        ({"cgroup/cpu/cpu.cfs_quota_us": "150000\n", "cgroup/cpu/cpu.cfs_period_us": "100000\n"}, 1.5),
        (
            {
                "self_cgroup": "5:memory:/x\n4:cpu,cpuacct:/x\n",
                "cgroup/cpu,cpuacct/x/cpu.cfs_quota_us": "200000",
                "cgroup/cpu,cpuacct/x/cpu.cfs_period_us": "100000",
            },
            2,
        ),
        ({"self_cgroup": "garbage\n\n:\n"}, math.inf),
    ],
)
def test_cpu_quota(system: System, files: dict[str, str], quota: float) -> None:
    system.write(files)
    assert limits.cpu_quota() == quota


@pytest.mark.parametrize(("quota", "count"), [("250000", 2), ("50000", 1), ("800000", 8), ("9000000", 8)])
def test_never_more_threads_than_the_quota(system: System, quota: str, count: int) -> None:
    system.write({"cgroup/cpu.max": f"{quota} 100000"})
    assert choice()[0] == count
    if count < 8:
        assert choice()[1] == f"the container may use {int(quota) / 100000:g} CPUs"


STAT = "anon 5\ninactive_file 30\nactive_file 20\nshmem 7\ntotal_inactive_file 3\ntotal_active_file 4\nbad\n"


@pytest.mark.parametrize(
    ("files", "left"),
    [
        ({}, math.inf),
        ({"memory.max": "max\n"}, math.inf),
        ({"memory.max": "1000\n", "memory.current": "400\n", "memory.stat": STAT}, 650),
        ({"memory.max": "1000\n", "memory.current": "400\n"}, math.inf),  # half a description is none
        ({"memory/memory.limit_in_bytes": str((1 << 63) - 4096)}, math.inf),
        (
            {
                "memory/memory.limit_in_bytes": "1000",
                "memory/memory.usage_in_bytes": "900",
                "memory/memory.stat": STAT,
            },
            107,
        ),
    ],
)
def test_memory_left(system: System, files: dict[str, str], left: float) -> None:
    system.write({f"cgroup/{name}": text for name, text in files.items()})
    assert limits.memory_left() == left


def test_unreadable_limits_are_none(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> str:
        raise PermissionError

    monkeypatch.setattr(Path, "read_text", refuse)
    assert (limits.cpu_quota(), limits.memory_left()) == (math.inf, math.inf)


def test_the_cpu_has_a_name() -> None:
    assert cores.cpu_name().strip()
