"""`edgellm serve` in a process of its own, and what can be seen of it from outside. Used by the tools that soak and fuzz."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import psutil

START_S, SETTLE_S, END_S = 300.0, 30.0, 40.0


class Server:
    """`edgellm serve` in a process, and what can be seen of it from outside."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process, self.log = process, log
        self.eye = psutil.Process(process.pid)
        self.address = self._wait_for_address()

    def _wait_for_address(self) -> str:
        end = time.monotonic() + START_S
        while time.monotonic() < end and self.process.poll() is None:
            if found := re.search(r"http://[\d.]+:\d+", self.said):
                return found[0]
            time.sleep(0.05)
        raise SystemExit(f"the server did not start:\n{self.said}")

    @property
    def said(self) -> str:
        """All that it has written so far."""
        return self.log.read_text(errors="replace")

    def wait_until_ready(self) -> None:
        """Return once it can answer."""
        end = time.monotonic() + START_S
        while not self._is_ready():
            if time.monotonic() > end or self.process.poll() is not None:
                raise SystemExit(f"the model was not loaded:\n{self.said}")
            time.sleep(0.1)

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.address}/health", timeout=60):
                return True
        except urllib.error.HTTPError as error:
            error.close()
            return False

    def gauges(self) -> dict[str, int]:
        """What /metrics says, summed over models."""
        with urllib.request.urlopen(f"{self.address}/metrics", timeout=60) as answer:
            text = answer.read().decode()
        found: dict[str, int] = defaultdict(int)
        for name, value in re.findall(r"^edgellm_(\w+)(?:\{.*\})? (\d+)$", text, re.MULTILINE):
            found[name] += int(value)
        return dict(found)

    def settle(self) -> dict[str, int]:
        """Wait until nothing is under way, and return the gauges; those that never settle are told by them."""
        end = time.monotonic() + SETTLE_S
        while True:
            found = self.gauges()
            is_quiet = not any(found[name] for name in ("requests_open", "sequences_running", "sequences_waiting"))
            if is_quiet or time.monotonic() > end:
                return found
            time.sleep(0.1)

    def footprint(self) -> dict[str, float]:
        """Medians of its resident bytes, those of them that no file stands behind, threads and open files."""
        rows = []
        for _ in range(9):
            memory = self.eye.memory_info()
            files = self.eye.num_fds() if hasattr(self.eye, "num_fds") else self.eye.num_handles()
            rows.append((memory.rss, memory.rss - getattr(memory, "shared", 0), self.eye.num_threads(), files))
            time.sleep(0.1)
        names = ("resident", "anonymous", "threads", "files")
        return dict(zip(names, (median(column) for column in zip(*rows, strict=True)), strict=True))

    def end(self) -> int | None:
        """Tell it to end. -> its exit code, None if it had to be killed."""
        self.process.send_signal(signal.SIGTERM if os.name == "posix" else signal.CTRL_BREAK_EVENT)
        try:
            return self.process.wait(END_S)
        except subprocess.TimeoutExpired:
            return None


@contextmanager
def serving(model: str, *options: str) -> Iterator[Server]:
    """A server that listens, killed in the end if it still lives. options: of `edgellm serve`."""
    command = [sys.executable, "-m", "edgellm", "serve", model, "--port", "0", *options]
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        flags = subprocess.CREATE_NEW_PROCESS_GROUP if sys.platform == "win32" else 0
        with log.open("wb") as file:
            process = subprocess.Popen(command, stdout=file, stderr=file, creationflags=flags)
        try:
            yield Server(process, log)
        finally:
            process.kill()
            process.wait()
