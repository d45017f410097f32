"""Starting where nothing can be kept: case O18. Processes of their own, because Numba reads its settings once.

A place below a file stands for a read-only one: the tests may run as root, whom no permission stops.
"""

from __future__ import annotations

import compileall
import json
import os
import shutil
import subprocess
import sys
import zipapp
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from tiny_models import write_tiny

import edgellm
from edgellm import LLM, models, paths
from edgellm import kernels as kernels_package
from edgellm.kernels.cpu import objects, store

pytestmark = pytest.mark.slow  # some compile the kernels of a tiny model


RUN = ("hello", "--raw", "--json", "-n", "4", "--temperature", "0", "--ignore-eos")


def start(command: Sequence[object], folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("NUMBA_", "EDGELLM_", "XDG_"))}
    words = [sys.executable, *map(str, command)]
    return subprocess.run(words, env=kept | environment, cwd=folder, capture_output=True, text=True, timeout=300)


def run(model: Path, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return start(["-m", "edgellm", "run", model, *RUN], folder, **environment)


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
    nowhere = "/proc/nope" if os.path.isdir("/proc") else nowhere
    first = run(model, tmp_path, EDGELLM_HOME=home, NUMBA_CACHE_DIR=nowhere)
    wanted = ids(first)
    assert "compile" in first.stderr and "cannot" not in first.stderr
    (tmp_path / "elsewhere").mkdir()
    again = run(model, tmp_path / "elsewhere", EDGELLM_HOME=home, NUMBA_CACHE_DIR=nowhere)
    assert ids(again) == wanted
    assert again.stderr == "", "the second start, from another folder, has nothing to compile"


@pytest.mark.parametrize("place", ["below a file", "/proc/nope"])
def test_o18_numba_s_cache_is_not_asked_for(place: str, tmp_path: Path, nowhere: str) -> None:
    """With all kernels compiled before, neither home nor Numba's cache being writable is worth a word."""
    model = write_tiny(tmp_path / "m.gguf")
    LLM.load(model).close()  # the user's own folder has the kernels now
    numba = nowhere if place == "below a file" else place
    done = run(model, tmp_path, EDGELLM_HOME=str(paths.home()), NUMBA_CACHE_DIR=numba, HOME=nowhere)
    ids(done)
    assert done.stderr == ""


# ---- inside one file ----
ONE_KERNEL = """
import sys
from pathlib import Path
from edgellm.kernels.cpu import isa, objects
print(objects.addresses(["nothing"], isa.choose().level, Path(sys.argv[1]))["nothing"] > 0, "numba" in sys.modules)
"""
FREEZE = "import sys\nsys.frozen = True\n"


def make_zip(folder: Path, main: str, with_sources: bool = True) -> Path:
    """Zip the package with a main program, as `python -m zipapp` does. Libraries come from this Python."""
    tree = folder / "tree"
    no_bytecode = shutil.ignore_patterns("__pycache__")
    shutil.copytree(str(edgellm.__path__[0]), tree / "edgellm", ignore=no_bytecode)
    for package in (kernels_package, models):
        name = package.__name__.rpartition(".")[2]
        shutil.copytree(package.__path__[0], tree / "edgellm" / name, ignore=no_bytecode, dirs_exist_ok=True)
    if not with_sources:
        assert compileall.compile_dir(tree, legacy=True, quiet=1)
        for source in (tree / "edgellm").rglob("*.py"):
            source.unlink()
    (tree / "__main__.py").write_text(main)
    zipapp.create_archive(tree, folder / "app.pyz")
    shutil.rmtree(tree)
    return folder / "app.pyz"


def test_o18_a_zip_app_answers_and_shares_the_compiled_kernels(tmp_path: Path) -> None:
    model = write_tiny(tmp_path / "m.gguf")
    LLM.load(model).close()  # the user's own folder has the kernels now
    app = make_zip(tmp_path, "import sys\nfrom edgellm.cli import main\nsys.exit(main())\n")
    home = str(paths.home().resolve())
    wanted = ids(run(model, tmp_path, EDGELLM_HOME=home))
    for folder in (tmp_path, tmp_path / "elsewhere"):
        folder.mkdir(exist_ok=True)
        done = start([os.path.relpath(app, folder), "run", model, *RUN], folder, EDGELLM_HOME=home)
        assert ids(done) == wanted
        assert done.stderr == "", "the same sources, so the same kernels: nothing is compiled"


@pytest.mark.parametrize(
    ("kind", "main", "with_sources", "compiles_here"),
    [
        ("a zip", ONE_KERNEL, True, False),
        ("a frozen application", FREEZE + ONE_KERNEL, True, True),
        ("a frozen application without sources", FREEZE + ONE_KERNEL, False, True),
    ],
)
def test_o18_one_file_compiles_once_wherever_it_lies(
    kind: str, main: str, with_sources: bool, compiles_here: bool, tmp_path: Path
) -> None:
    """From another folder, and unpacked to another place, as one-file applications are at every start."""
    app, elsewhere = make_zip(tmp_path, main, with_sources), tmp_path / "elsewhere"
    elsewhere.mkdir()
    first = start([app.name, tmp_path / "kernels"], tmp_path)
    assert (first.returncode, first.stdout, first.stderr) == (0, f"True {compiles_here}\n", "")
    made = sorted((tmp_path / "kernels").rglob("*.o"))
    assert len(made) == 1
    again = start([shutil.copy(app, elsewhere / "copy.pyz"), tmp_path / "kernels"], elsewhere)
    assert (again.returncode, again.stdout, again.stderr) == (0, "True False\n", "")
    assert sorted((tmp_path / "kernels").rglob("*.o")) == made


# ---- the first request ----
def forget_kernels(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(objects, "_loaded", {})


def compile_quickly(patch: pytest.MonkeyPatch, users: Path) -> list[str]:
    """Put a compiler in place that takes kernels from the user's home. -> names of what it compiled."""
    compiled: list[str] = []

    def copy(names: list[str], target: object, folder: Path, one_done: Callable[[str], None]) -> None:
        for name in names:
            code = store.read_object(users / "kernels" / folder.name, name)
            assert code is not None, f"{name} is not in the user's home"
            store.write_object(folder, name, code)
            compiled.append(name)
            one_done(name)

    patch.setattr(objects, "_compile_in_processes", copy)
    return compiled


def test_o18_a_caller_can_say_warming_from_the_beginning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client waits ten seconds: whoever serves it must know at once that kernels are being compiled, and how far it is."""
    model, users = write_tiny(tmp_path / "m.gguf", "gemma3", formats="Q8_0"), paths.home()
    forget_kernels(monkeypatch)
    LLM.load(model, threads=2).close()  # the user's own folder has the kernels now
    forget_kernels(monkeypatch)
    monkeypatch.setenv("EDGELLM_HOME", str(tmp_path / "home"))
    compiled = compile_quickly(monkeypatch, users)
    told: list[tuple[str, int, int, int]] = []
    with LLM.load(model, threads=2, progress=lambda *what: told.append((*what, len(compiled)))) as llm:
        total = told[0][2]
        assert told[0] == ("compile kernels", 0, total, 0), "the first thing said, before anything is compiled"
        steps = [t for t in told if t[0] == "compile kernels"]
        assert steps == [("compile kernels", n, total, n) for n in range(total + 1)]
        assert told.index(steps[-1]) < min(i for i, t in enumerate(told) if t[0] == "load")

        def refuse(*_: object, **__: object) -> None:
            raise AssertionError("something is compiled after loading")

        monkeypatch.setattr(objects, "addresses", refuse)
        monkeypatch.setattr(objects, "compile_objects", refuse)
        for prompt in (1, 2, 3, 70):
            assert len(llm.generate(list(range(5, 5 + prompt)), max_tokens=3, ignore_eos=True).token_ids) == 3
        assert llm.logits(range(5, 50)).shape[0] == 45
