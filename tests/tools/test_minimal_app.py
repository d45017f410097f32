"""tools/minimal_app.py, frozen by PyInstaller as docs/desktop.md says: it runs from a folder nobody can write to.

The kernels come with it and Numba does not. The package is built from a copy with its folders in place, as a wheel has
them: PyInstaller cannot follow an editable install.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import minimal_app
import pytest
from tiny_models import write_tiny

import edgellm
from edgellm import kernels, models, paths

pytestmark = [pytest.mark.desktop, pytest.mark.slow]
if importlib.util.find_spec("PyInstaller") is None:
    pytest.skip("PyInstaller is not installed (pip install -e '.[demo]')", allow_module_level=True)

ROOT = Path(__file__).resolve().parents[2]
NOBODY = 65534
IS_ROOT = hasattr(os, "geteuid") and os.geteuid() == 0


class Frozen(NamedTuple):
    program: Path
    model: Path
    expected: list[int]  # what the same program says unfrozen


def copy_package(folder: Path) -> None:
    """Lay edgellm out as an installed wheel does, with its entry points."""
    ignore = shutil.ignore_patterns("__pycache__", "compiled")
    shutil.copytree(edgellm.__path__[0], folder / "edgellm", ignore=ignore, dirs_exist_ok=True)
    for package in (kernels, models):
        name = package.__name__.rpartition(".")[2]
        shutil.copytree(package.__path__[0], folder / "edgellm" / name, ignore=ignore, dirs_exist_ok=True)
    about = folder / f"edgellm-{edgellm.__version__}.dist-info"
    about.mkdir()
    entries = importlib.metadata.distribution("edgellm").read_text("entry_points.txt")
    assert entries and "pyinstaller40" in entries, "the installed edgellm is an old one: pip install -e . again"
    (about / "entry_points.txt").write_text(entries, encoding="utf-8")
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: edgellm\nVersion: {edgellm.__version__}\n")


def build_kernels(model: Path, folder: Path) -> None:
    """Build in a folder that other tests and runs share, and take from there what belongs to this edgellm."""
    shared = paths.home() / "test-kernels"
    command = [sys.executable, "-m", "edgellm", "kernels", "build", "--model", model, "--output", shared]
    built = subprocess.run(command, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    made = Path(built.stdout.rpartition(": ")[2].strip())
    shutil.copytree(made, folder / made.name)
    shutil.copy(shared / "manifest.json", folder)


def documented_command() -> list[str]:
    """The command of docs/desktop.md, so that it stays true."""
    page = (ROOT / "docs" / "desktop.md").read_text(encoding="utf-8").replace("\\\n", " ")
    (line,) = [line for line in page.splitlines() if line.startswith("pyinstaller ") and "--add-data" in line]
    return shlex.split(line)[1:]


def freeze(folder: Path) -> Path:
    copy_package(folder / "site")
    options = [str(ROOT / word) if word.endswith(".py") else word for word in documented_command()]
    search = os.pathsep.join([str(folder / "site"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", "PyInstaller", "--log-level", "WARN", *options],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": search},
        capture_output=True,
        text=True,
    )
    for missing in ("objdump is required", "Python shared library", "Python was built without a shared library"):
        if missing in done.stderr:  # Debian: binutils, libpython3.11
            pytest.skip(f"PyInstaller cannot work here: {done.stderr[done.stderr.index(missing) :].splitlines()[0]}")
    assert done.returncode == 0, done.stderr[-3000:]
    return folder / "dist" / "minimal_app" / ("minimal_app.exe" if os.name == "nt" else "minimal_app")


def lock(folder: Path, is_locked: bool) -> None:
    """Take the right to write away, everywhere below too, or give it back."""
    for path in [folder, *folder.rglob("*")]:
        if not path.is_symlink():
            mode = path.stat().st_mode
            path.chmod(mode & ~0o222 if is_locked else mode | 0o200)


@pytest.fixture(scope="module")
def frozen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Frozen]:
    folder = tmp_path_factory.mktemp("frozen")
    for parent in (folder, folder.parent, folder.parent.parent):  # another user must get in
        parent.chmod(parent.stat().st_mode | 0o055)
    model = write_tiny(folder / "tiny.gguf", formats="Q8_0")
    build_kernels(model, folder / "kernels")
    program = freeze(folder)
    command = [sys.executable, minimal_app.__file__, model]
    expected = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    lock(program.parent, True)
    yield Frozen(program, model, expected["token_ids"])
    lock(program.parent, False)


def start(frozen: Frozen, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the application somewhere, as somebody without a home, who may not write: root becomes nobody."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("EDGELLM_", "XDG_", "NUMBA_", "PYTHON", "LD_"))}
    nowhere = str(frozen.model / "home")  # below a file: it cannot be made
    kept |= {"HOME": nowhere, "LOCALAPPDATA": nowhere}
    options: dict[str, Any] = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if IS_ROOT else {}
    command = [str(frozen.program), str(frozen.model)]
    return subprocess.run(
        command, cwd=folder, env=kept | environment, capture_output=True, text=True, timeout=120, **options
    )


def answer(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def contents(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): path.lstat().st_mtime_ns for path in folder.rglob("*")}


def test_o18_a_frozen_application_runs_from_a_read_only_folder(frozen: Frozen) -> None:
    """From two working directories, twice: nothing is written, nothing compiled, and the second start is as quick."""
    there = frozen.program.parent
    before, seconds = contents(there), []
    for folder in (there, Path(there.anchor)):
        told = answer(start(frozen, folder))
        assert told["token_ids"] == frozen.expected
        assert told["modules"] == ["llvmlite"], "Numba is neither needed nor there"
        seconds.append(told["seconds"])
    assert seconds[1] < 2 * seconds[0] + 2, seconds
    assert contents(there) == before
    assert not list(there.rglob("numba*")), "it was left out"


def test_o18_kernels_lie_beside_a_frozen_application(frozen: Frozen) -> None:
    there = frozen.program.parent
    inside, beside = there / "_internal" / "edgellm" / "kernels" / "compiled", there / "edgellm-kernels"
    lock(there, False)
    try:
        shutil.move(inside, beside)
        lock(there, True)
        assert answer(start(frozen, frozen.model.parent))["token_ids"] == frozen.expected
    finally:
        lock(there, False)
        shutil.move(beside, inside)
        lock(there, True)


def test_o18_a_frozen_application_without_its_kernels_says_so(frozen: Frozen) -> None:
    done = start(frozen, frozen.model.parent, EDGELLM_ISA="generic")
    assert (done.returncode, done.stdout) == (1, "")
    assert "Numba" in done.stderr and "edgellm kernels build" in done.stderr and done.stderr.count("\n") == 1
    lost = start(frozen._replace(model=frozen.model.with_name("lost.gguf")), frozen.model.parent)
    assert (lost.returncode, lost.stdout) == (1, "") and "lost.gguf" in lost.stderr and lost.stderr.count("\n") == 1


def test_unfrozen_it_says_how_it_is_called(capsys: pytest.CaptureFixture[str]) -> None:
    assert minimal_app.main([]) == 2
    assert "MODEL" in capsys.readouterr().err
