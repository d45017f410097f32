"""Starting where nothing can be kept: case O18. Processes of their own, because Numba reads its settings once.

A place below a file stands for a read-only one: the tests may run as root, whom no permission stops.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_models import write_tiny

pytestmark = pytest.mark.slow  # each compiles the kernels of a tiny model


def run(model: Path, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("NUMBA_", "EDGELLM_", "XDG_"))}
    command = [sys.executable, "-m", "edgellm", "run", str(model), "hello", "--raw", "--json"]
    command += ["-n", "4", "--temperature", "0", "--ignore-eos"]
    return subprocess.run(command, env=kept | environment, cwd=folder, capture_output=True, text=True, timeout=300)


def ids(done: subprocess.CompletedProcess[str]) -> list[int]:
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    found: list[int] = json.loads(done.stdout)["token_ids"]
    assert len(found) == 4
    return found


@pytest.fixture
def nowhere(tmp_path: Path) -> str:
    file = tmp_path / "file"
    file.write_text("not a folder")
    return str(file / "home")


def test_o18_nothing_can_be_kept_in_the_home(tmp_path: Path, nowhere: str) -> None:
    done = run(write_tiny(tmp_path / "m.gguf"), tmp_path, HOME=nowhere, LOCALAPPDATA=nowhere, EDGELLM_HOME=nowhere)
    ids(done)
    assert done.stderr.count("cannot be kept") == 1 and "EDGELLM_HOME" in done.stderr


def test_o18_numba_is_told_to_keep_its_cache_in_a_place_that_cannot_be(tmp_path: Path, nowhere: str) -> None:
    model, home = write_tiny(tmp_path / "m.gguf"), str(tmp_path / "home")
    first = run(model, tmp_path, EDGELLM_HOME=home, NUMBA_CACHE_DIR=nowhere)
    wanted = ids(first)
    assert "compile" in first.stderr and "cannot" not in first.stderr
    (tmp_path / "elsewhere").mkdir()
    again = run(model, tmp_path / "elsewhere", EDGELLM_HOME=home, NUMBA_CACHE_DIR=nowhere)
    assert ids(again) == wanted
    assert again.stderr == "", "the second start, from another folder, has nothing to compile"
