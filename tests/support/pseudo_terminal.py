"""A program at a pseudo-terminal, for tests: type into it and wait for what it shows. POSIX only."""

from __future__ import annotations

import codecs
import os
import re
import select
import signal
import struct
import sys
import time
from collections.abc import Mapping
from types import TracebackType

LIMIT_S = 60.0  # generous: a test machine may be busy; nothing here waits longer than it has to
_WHERE_IS_THE_CURSOR = b"\x1b[6n"
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_=>])")


class PseudoTerminal:
    """Runs `python ARGUMENTS` at a terminal of `size` (rows, columns). `shown` is all that came, escapes included.

    Asked where its cursor is, it says: at the top.
    """

    def __init__(
        self, arguments: list[str], *, environ: Mapping[str, str] | None = None, size: tuple[int, int] = (24, 80)
    ) -> None:
        import fcntl
        import pty
        import termios

        drop = ("NO_COLOR", "COLUMNS", "LINES", "FORCE_COLOR")
        variables = {name: value for name, value in os.environ.items() if name not in drop}
        variables |= {"TERM": "xterm-256color", **(environ or {})}
        self.shown = ""
        self._seen = 0
        self._code: int | None = None
        self._pid, self._fd = pty.fork()
        if self._pid == 0:  # the child: nothing but exec, as threads of the parent are gone
            try:
                os.execve(sys.executable, [sys.executable, *arguments], variables)
            finally:
                os._exit(127)
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def type(self, text: str) -> None:
        """Press keys, as fast as the program takes them."""
        data = text.encode()
        end = time.monotonic() + LIMIT_S
        while data:
            assert time.monotonic() < end, "the program does not read"
            self._read(0.0)
            if select.select([], [self._fd], [], 0.05)[1]:
                data = data[os.write(self._fd, data[:512]) :]

    def wait_for(self, text: str, limit_s: float = LIMIT_S) -> str:
        """Wait until `text` is shown after what was waited for before, escapes left out; return what came until then."""
        end = time.monotonic() + limit_s
        while True:
            new = plain(self.shown)[self._seen :]
            if text in new:
                before = new[: new.index(text)]
                self._seen += len(before) + len(text)
                return before
            assert time.monotonic() < end and self._read(0.1), f"{text!r} did not come; since the last wait: {new!r}"

    def wait_for_end(self, limit_s: float = LIMIT_S) -> int:
        """Wait until the program ends and return its exit code."""
        end = time.monotonic() + limit_s
        while self._read(0.1):
            assert time.monotonic() < end, f"it does not end; shown last: {plain(self.shown)[-500:]!r}"
        return self._wait()

    def close(self) -> None:
        """End the program, if it still runs."""
        if self._code is None:
            os.kill(self._pid, signal.SIGKILL)
            self._wait()

    def __enter__(self) -> PseudoTerminal:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _read(self, limit_s: float) -> bool:
        """Take what comes within `limit_s` seconds; False once the program has closed its terminal."""
        if not select.select([self._fd], [], [], limit_s)[0]:
            return True
        try:
            data = os.read(self._fd, 1 << 16)
        except OSError:  # Linux says so where macOS returns nothing
            return False
        if _WHERE_IS_THE_CURSOR in data:
            os.write(self._fd, b"\x1b[1;1R")
        self.shown += self._decoder.decode(data)
        return bool(data)

    def _wait(self) -> int:
        if self._code is None:
            _, status = os.waitpid(self._pid, 0)
            self._code = os.waitstatus_to_exitcode(status)
            os.close(self._fd)
        return self._code


def plain(text: str) -> str:
    """Return a text without escape sequences."""
    return _ESCAPES.sub("", text)
