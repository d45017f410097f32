"""The call of pip: a small Python program stands in for it."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from edgellm import hub_pip
from edgellm.errors import DownloadError


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose `pip.py` is what `python -m pip` runs, because it is the working folder and comes first."""
    folder = tmp_path / "stand-in"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    return folder


def download(folder: Path) -> list[tuple[int, int]]:
    folder.mkdir()
    seen: list[tuple[int, int]] = []
    hub_pip.download_wheels(["some-thing==1.0"], folder, 300, lambda done, total: seen.append((done, total)))
    return seen


def test_progress_follows_the_growing_file(stand_in: Path, tmp_path: Path) -> None:
    (stand_in / "pip.py").write_text(
        "import os, pathlib, sys, time\n"
        "target = pathlib.Path(sys.argv[sys.argv.index('--dest') + 1])\n"
        "part = pathlib.Path(os.environ['TMPDIR'], 'pip-unpack-1', 'some_thing-1.0-py3-none-any.whl')\n"
        "part.parent.mkdir()\n"
        "for size in (100, 200, 300):\n"
        "    part.write_bytes(bytes(size)); time.sleep(0.3)\n"
        "part.rename(target / part.name)\n"
        "assert 'some-thing==1.0' in sys.argv and '--no-deps' in sys.argv\n"
    )
    seen = download(tmp_path / "wheels")
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert {100, 200, 300} <= {done for done, _ in seen}
    assert seen[-1] == (300, 300)
    assert (tmp_path / "wheels" / "some_thing-1.0-py3-none-any.whl").exists()


@pytest.mark.parametrize(
    ("printed", "says"),
    [
        ("ERROR: No matching distribution found for some-thing==1.0", "No matching distribution"),
        ("WARNING: Retrying (Retry(total=4)) after\nERROR: no version", r"index does not answer \(no version\)"),
        ("Traceback\nModuleNotFoundError: No module named 'x'", "No module named 'x'"),
        ("ERROR: " + "x" * 5000, "x{200}…"),
        ("", "no output"),
    ],
)
def test_a_failure_is_one_line_with_pips_reason(stand_in: Path, tmp_path: Path, printed: str, says: str) -> None:
    (stand_in / "pip.py").write_text(f"import sys; sys.stderr.write({printed!r}); sys.exit(1)")
    with pytest.raises(DownloadError, match=says) as caught:
        download(tmp_path / "wheels")
    message = str(caught.value)
    assert "some-thing==1.0" in message and "path of a GGUF file" in message
    assert "\n" not in message and len(message) < 500


def test_an_interrupted_wait_ends_pip(stand_in: Path, tmp_path: Path) -> None:
    (stand_in / "pip.py").write_text("import time; time.sleep(60)")
    (tmp_path / "wheels").mkdir()

    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    # It returns at once, and with warnings as errors a child left running would fail the test (ResourceWarning).
    with pytest.raises(KeyboardInterrupt):
        hub_pip.download_wheels(["some-thing==1.0"], tmp_path / "wheels", 1, interrupt)


def test_without_pip_the_ways_out_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(DownloadError, match="ensurepip.*uv pip install pip.*GGUF"):
        download(tmp_path / "wheels")


def test_a_frozen_application_does_not_start_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    with pytest.raises(DownloadError, match="frozen"):
        download(tmp_path / "wheels")
