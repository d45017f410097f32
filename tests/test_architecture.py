"""The house keeps its shape: imports point one way, rooms stay small, the package list equals the folders.

Each check is a function from a tree to a list of faults. It runs on the project, where it must find nothing, and on a
small tree made to break it, where it must find the fault.
"""

from __future__ import annotations

import ast
import importlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent

# Lowest first. A module may import from its own row and from rows above it in this table; never from rows below.
# A name stands for a file, a folder, and the files that share its name's first part (hub: hub.py, hub_pip.py).
LAYERS = (
    ("errors", "config", "version", "paths", "private_file"),
    ("kernels",),
    ("cache", "tokenizer", "chat_template", "gguf", "hub"),
    ("models",),
    ("sequence", "scheduler", "admission", "pace", "batch", "runner", "sampling", "choosing", "speculative"),
    (
        "engine",
        "packing",
        "loader",
        "guessing",
        "keeping",
        "inspect",
        "lora",
        "doctor",
        "shared_engine",
        "waiting",
        "embedding",
        "reranking",
        "estimate",
        "background",
    ),
    ("structured", "tool_calls", "completion", "request", "banned"),
    ("llm", "stream", "chat_stream", "asking", "async_llm", "async_stream"),
    ("cli", "server", "__main__", "__pyinstaller"),
)
# Narrower than the layers: who may not import what, and why.
FORBIDDEN = (
    ("models", ("kernels.cpu", "kernels.cuda", "kernels.reference"), "an architecture never sees a backend"),
    ("cache.pool", ("kernels", "numpy"), "the pool owns ids, not arrays"),
    ("engine", ("tokenizer", "chat_template"), "the engine knows ids only, never text"),
)
MAX_FILE, MAX_FUNCTION, MAX_MODEL, MAX_FORMAT = 400, 60, 150, 150


def package_files(root: Path) -> dict[str, Path]:
    """Return {dotted name below edgellm: file}. The package itself is ""."""
    modules = {}
    for folder, prefix in (("edgellm", ""), ("kernels", "kernels"), ("models", "models")):
        for path in sorted((root / folder).rglob("*.py")):
            parts = [prefix] if prefix else []
            parts += path.relative_to(root / folder).with_suffix("").parts
            modules[".".join(part for part in parts if part != "__init__")] = path
    return modules


def imports(module: str, path: Path, modules: dict[str, Path], at_load: bool = False) -> Iterator[tuple[int, str]]:
    """Yield (line, target) of every import in a file, or only of those done at load, outside functions.

    Targets inside edgellm start with ".".
    """
    package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    package = [part for part in package if part]
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in tree.body if at_load else ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.lineno, node.module or ""
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - (node.level - 1)] + (node.module.split(".") if node.module else [])
            for alias in node.names:
                full = ".".join([*base, alias.name])
                yield node.lineno, "." + (full if full in modules else ".".join(base))


def layer_of(module: str) -> int | None:
    top = module.split(".")[0]
    for number, names in enumerate(LAYERS):
        if any(top == name or top.startswith(name + "_") for name in names):
            return number
    return None


def is_below(module: str, name: str) -> bool:
    return module == name or module.startswith(name + ".")


def upward_imports(root: Path) -> list[str]:
    modules = package_files(root)
    faults = []
    for module, path in modules.items():
        own = layer_of(module)
        if module and own is None:
            faults.append(f"{path.relative_to(root)}: give {module} a place in LAYERS")
        if not module or own is None:
            continue  # the package's front door names everything, lazily
        for line, target in imports(module, path, modules):
            where = f"{path.relative_to(root)}:{line}"
            if target.startswith("."):
                theirs = layer_of(target[1:])
                if theirs is None or theirs > own:
                    faults.append(f"{where}: {module} imports {target[1:] or 'the front door'}, which lies above it")
            elif target.split(".")[0] in ("edgellm", "kernels", "models", "tools", "tests"):
                faults.append(f"{where}: {target} (imports inside the package are relative; tools are never imported)")
    return faults


def forbidden_imports(root: Path) -> list[str]:
    modules = package_files(root)
    faults = []
    for module, path in modules.items():
        for who, banned, why in FORBIDDEN:
            if is_below(module, who):
                for line, target in imports(module, path, modules):
                    if any(is_below(target.removeprefix("."), name) for name in banned):
                        faults.append(f"{path.relative_to(root)}:{line}: imports {target}: {why}")
    return faults


def import_cycles(root: Path) -> list[str]:
    """Find modules that need each other to load. A second direction inside a function is allowed."""
    modules = package_files(root)
    graph = {
        module: {target[1:] for _, target in imports(module, path, modules, at_load=True) if target[0] == "."}
        for module, path in modules.items()
        if module
    }
    # Take away what imports nothing that is left, again and again: what stays is, or leads to, a cycle.
    while free := {module for module, targets in graph.items() if not targets & graph.keys()}:
        graph = {module: targets for module, targets in graph.items() if module not in free}
    return [f"{module} is in, or leads to, an import cycle" for module in graph]


def large_rooms(root: Path) -> list[str]:
    faults = []
    for folder in ("edgellm", "kernels", "models", "tests", "tools"):
        for path in sorted((root / folder).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            name = path.relative_to(root)
            limit = {"models": MAX_MODEL, "kernels/formats": MAX_FORMAT, "kernels/cache_formats": MAX_FORMAT}.get(
                name.parent.as_posix(), MAX_FILE
            )
            if len(text.splitlines()) > limit:
                faults.append(f"{name}: {len(text.splitlines())} lines, the limit is {limit}")
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    length = (node.end_lineno or node.lineno) - node.lineno + 1
                    if length > MAX_FUNCTION:
                        faults.append(f"{name}:{node.lineno}: {node.name} has {length} lines, limit {MAX_FUNCTION}")
    return faults


def package_list(root: Path) -> list[str]:
    # pytest brings tomli where Python has no tomllib of its own (3.10).
    toml: Any = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    listed = set(toml.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]["packages"])
    folders = set()
    for path in package_files(root).values():
        folder = path.parent.relative_to(root).as_posix().replace("/", ".")
        folders.add(folder if folder.split(".")[0] == "edgellm" else f"edgellm.{folder}")
    faults = [f"{name} is not listed in pyproject.toml" for name in sorted(folders - listed)]
    faults += [f"{name} is listed in pyproject.toml and has no folder" for name in sorted(listed - folders)]
    packages = {path.parent for path in package_files(root).values()}
    faults += [
        f"{folder.relative_to(root)} lacks __init__.py" for folder in packages if not (folder / "__init__.py").exists()
    ]
    return faults


def stray_inits(root: Path) -> list[str]:
    """Folders of tests are no packages: pytest imports each file by its path."""
    return [str(path.relative_to(root)) for path in (root / "tests").rglob("__init__.py")]


def project_files(root: Path) -> list[Path]:
    """Return what git tracks or would track; everything where git or its folder is missing (a source archive)."""
    try:
        command = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        listed = subprocess.run(command, capture_output=True, check=True).stdout.decode()
        paths = [root / name for name in listed.split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        made = re.compile(r"(^|/)(\.(?!ci/)|__pycache__|build/|dist/|[^/]*\.egg-info)")
        paths = [path for path in root.rglob("*") if not made.search(path.relative_to(root).as_posix())]
    return [path for path in paths if path.is_file()]


# Places of one machine. Written in pieces, or this file would be its own first find.
STRANGE_PLACES = re.compile(rb"/" rb"work(?![\w-])|(?<![\w\])])\.lib" rb"rary\b|\.\./" rb"shared|/" rb"tmp/")


def strange_places(root: Path) -> list[str]:
    faults = []
    for path in project_files(root):
        for number, line in enumerate(path.read_bytes().split(b"\n"), 1):
            if match := STRANGE_PLACES.search(line):
                faults.append(f"{path.relative_to(root)}:{number}: {match[0].decode()}")
    return faults


POINTER = re.compile(r"(?:edgellm|kernels|models|tests|tools|\.ci)/[\w./-]*")


def dead_pointers(root: Path) -> list[str]:
    """Find files and folders that the documents name and that are not there. NAME stands for one to be written."""
    faults = []
    for document in (root / "README.md", root / "CONTRIBUTING.md"):
        for number, line in enumerate(document.read_text(encoding="utf-8").splitlines(), 1):
            for pointer in POINTER.findall(line):
                if "NAME" not in pointer and not (root / pointer.rstrip(".")).exists():
                    faults.append(f"{document.name}:{number}: there is no {pointer}")
    return faults


CHECKS: list[Callable[[Path], list[str]]] = [
    upward_imports,
    forbidden_imports,
    import_cycles,
    large_rooms,
    package_list,
    stray_inits,
    strange_places,
    dead_pointers,
]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_project_has_no_fault(check: Callable[[Path], list[str]]) -> None:
    faults = check(ROOT)
    assert not faults, "\n" + "\n".join(faults)


@pytest.mark.parametrize("name", ["kernels", "models"])
def test_folders_refuse_their_bare_names(name: str) -> None:
    done = subprocess.run([sys.executable, "-c", f"import {name}"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1
    assert "ImportError" in done.stderr and f"edgellm.{name}" in done.stderr
    assert importlib.import_module(f"edgellm.{name}").__name__ == f"edgellm.{name}"


SOUND_TREE = {
    "README.md": "`edgellm/llm.py` comes first.",
    "CONTRIBUTING.md": "Write `models/NAME.py`, like models/llama.py.",
    "pyproject.toml": '[tool.setuptools]\npackages = ["edgellm", "edgellm.cli", "edgellm.kernels", "edgellm.models"]\n',
    "edgellm/__init__.py": "from .llm import LLM",
    "edgellm/errors.py": "",
    "edgellm/llm.py": "from . import errors\nfrom .kernels import ops\nfrom .kernels.ops import Builder",
    "edgellm/cli/__init__.py": "def main():\n    from ..llm import LLM",
    "kernels/__init__.py": "",
    "kernels/ops.py": "import numpy\nfrom ..errors import OptionError",
    "models/__init__.py": "",
    "models/llama.py": "from ..kernels import ops",
    "tests/test_x.py": "",
    "tools/bench.py": "import edgellm",
}


def make_tree(root: Path, changes: dict[str, str]) -> Path:
    for name, text in (SOUND_TREE | changes).items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_a_sound_tree_passes(check: Callable[[Path], list[str]], tmp_path: Path) -> None:
    assert check(make_tree(tmp_path, {})) == []


LONG_FUNCTION = "def f():\n" + "    x = 1\n" * 60


@pytest.mark.parametrize(
    ("check", "changes", "says"),
    [
        (upward_imports, {"kernels/ops.py": "from ..llm import LLM"}, "kernels/ops.py:1: kernels.ops imports llm"),
        (upward_imports, {"kernels/cpu/a.py": "from ...models import llama"}, "imports models.llama"),
        (upward_imports, {"kernels/ops.py": "from .. import llm"}, "imports llm"),
        (upward_imports, {"kernels/ops.py": "from .. import LLM"}, "the front door"),
        (upward_imports, {"models/llama.py": "def f():\n    from ..llm import LLM"}, "models/llama.py:2"),
        (upward_imports, {"models/llama.py": "from ..engine import Engine"}, "imports "),
        (upward_imports, {"edgellm/llm.py": "from .cli import main"}, "llm imports cli"),
        (upward_imports, {"edgellm/llm.py": "import tools.bench"}, "tools are never imported"),
        (upward_imports, {"edgellm/llm.py": "from edgellm.errors import X"}, "are relative"),
        (upward_imports, {"edgellm/llm.py": "import kernels"}, "are relative"),
        (upward_imports, {"edgellm/novel.py": ""}, "give novel a place"),
        (
            forbidden_imports,
            {"models/llama.py": "from ..kernels.cpu import tape", "kernels/cpu/tape.py": ""},
            "backend",
        ),
        (
            forbidden_imports,
            {"models/llama.py": "from ..kernels import reference", "kernels/reference.py": ""},
            "backend",
        ),
        (forbidden_imports, {"edgellm/cache/pool.py": "import numpy as np"}, "ids, not arrays"),
        (import_cycles, {"edgellm/errors.py": "from . import errors"}, "errors is in"),
        (import_cycles, {"kernels/a.py": "from .b import x", "kernels/b.py": "from . import a"}, "kernels.a is in"),
        (large_rooms, {"edgellm/errors.py": "\n" * 401}, "edgellm/errors.py: 401 lines, the limit is 400"),
        (large_rooms, {"models/llama.py": "\n" * 151}, "the limit is 150"),
        (large_rooms, {"kernels/formats/q4.py": "\n" * 151}, "the limit is 150"),
        (large_rooms, {"tools/bench.py": LONG_FUNCTION}, "tools/bench.py:1: f has 61 lines"),
        (
            large_rooms,
            {"edgellm/errors.py": "class A:\n" + LONG_FUNCTION.replace("\n", "\n ").replace("def", " def")},
            "f",
        ),
        (package_list, {"kernels/cpu/__init__.py": ""}, "edgellm.kernels.cpu is not listed"),
        (
            package_list,
            {"pyproject.toml": SOUND_TREE["pyproject.toml"].replace('"]', '", "edgellm.x"]')},
            "x is listed",
        ),
        (package_list, {"edgellm/server/app.py": ""}, "edgellm/server lacks __init__.py"),
        (stray_inits, {"tests/kernels/__init__.py": ""}, "tests/kernels/__init__.py"),
        (dead_pointers, {"README.md": "see\n`models/nothing.py`"}, "README.md:2: there is no models/nothing.py"),
        (strange_places, {"tools/bench.py": "path = '/" + "tmp/x'"}, "tools/bench.py:1"),
        (strange_places, {"README.md": "see .." + "/shared/x"}, "README.md:1"),
        (strange_places, {"README.md": "\ncd /" + "work"}, "README.md:2"),
    ],
)
def test_a_fault_is_found(
    check: Callable[[Path], list[str]], changes: dict[str, str], says: str, tmp_path: Path
) -> None:
    faults = check(make_tree(tmp_path, changes))
    assert any(says in fault for fault in faults), faults


def test_places_that_only_look_strange_are_let_pass(tmp_path: Path) -> None:
    text = "compiled.library a[0].library x().library /worker /workers network/workspace it" + "works"
    assert strange_places(make_tree(tmp_path, {"README.md": text})) == []


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_what_git_ignores_is_not_searched(tmp_path: Path) -> None:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    root = make_tree(tmp_path, {".gitignore": "build/", "build/x": "/" + "tmp/x", "README.md": "/" + "tmp/x"})
    subprocess.run(["git", "init", "-q", str(root)], check=True, env=clean)
    assert strange_places(root) == ["README.md:1: /" + "tmp/"]
