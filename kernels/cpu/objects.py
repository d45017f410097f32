"""Addresses of kernels: from what came with the application, from the user's cache, or compiled now.

An object of the cache belongs to one CPU (name and features), instruction level, Numba and llvmlite version and text of all
kernel sources; together they name its folder. A damaged, foreign or unwritable cache means compiling again, never an error
and never a wrong kernel. Objects are loaded with llvmlite alone: a warm start never imports Numba. Knows no kernel's
meaning; `compile.py` makes objects in processes of its own, so that this one stays small. (One file per kernel: reading 25
takes 1 ms, linking them 4.) Next hop: `store.py` and `shipped.py` for files, `tape.py` calls the addresses.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import llvmlite
import llvmlite.binding as llvm

from ...errors import ResourceError, UnsupportedError
from . import isa, shipped, store
from .isa import Level
from .target import Target, host_target, target_machine

CHUNK_FUNCTION = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 4)
"""C type of a chunk kernel; calling one releases Python's lock."""

Progress = Callable[[str, int, int], None]
_lock = threading.Lock()
_loaded: dict[tuple[str, str], int] = {}
_engines: list[Any] = []  # machine code lives as long as the process: addresses are never invalidated


def cache_key(level: Level) -> str:
    """Name of the folder for everything an object of this machine depends on."""
    digest = hashlib.sha256()
    host = f"{llvm.get_process_triple()} {llvm.get_host_cpu_name()} {llvm.get_host_cpu_features().flatten()}"
    sources = store.source_hash() or shipped.sources()
    for part in (host.encode(), level.name.encode(), llvmlite.__version__.encode(), _numba_version(), sources.encode()):
        digest.update(len(part).to_bytes(8, "little") + part)
    return f"{level.name}-{digest.hexdigest()[:24]}"


def _numba_version() -> bytes:
    """Read from the file that states it: importing Numba takes half a second."""
    from importlib.util import find_spec

    spec = find_spec("numba")
    if spec is None or spec.origin is None:
        return b""
    try:
        return (Path(spec.origin).parent / "_version.py").read_bytes()
    except OSError:  # inside a frozen application
        return b""


def choose_level() -> isa.Choice:
    """The level of this machine: forced, the best that the application brought kernels for, or the best it has."""
    return isa.choose(shipped=shipped.level_names())


def addresses(names: Sequence[str], level: Level, cache: Path, progress: Progress | None = None) -> dict[str, int]:
    """Machine addresses of the kernels called `names`, compiling what the cache lacks.

    cache: folder to keep objects in. progress(stage, done, total) is told about compiling only. Thread-safe.
    """
    key = cache_key(level)
    with _lock:
        missing = [n for n in names if (key, n) not in _loaded]
        if missing:
            _load(_objects(missing, level, cache / key, progress), level, key)
    return {n: _loaded[key, n] for n in names}


def _objects(names: Sequence[str], level: Level, folder: Path, progress: Progress | None) -> dict[str, bytes]:
    came_with = shipped.read_objects(names, level)
    found = {n: came_with.get(n) or store.read_object(folder, n) for n in names}
    missing = [n for n, code in found.items() if code is None]
    if missing:
        _check_compiler(missing, level)
        with _writable(folder) as writable:
            compile_objects(missing, host_target(level), Path(writable), progress)
            found.update({n: store.read_object(Path(writable), n) for n in missing})
    complete = {n: code for n, code in found.items() if code is not None}
    if len(complete) < len(names):
        lost = ", ".join(n for n in names if n not in complete)
        raise ResourceError(f"compiled kernels vanished from {folder} while being read ({lost}); start again")
    return complete


def _check_compiler(missing: Sequence[str], level: Level) -> None:
    from importlib.util import find_spec

    if find_spec("numba") is None:
        names = ", ".join(missing[:3]) + (f" and {len(missing) - 3} more" if len(missing) > 3 else "")
        message = f"kernels for the level {level.name} are not there ({names}) and Numba, which compiles them, is not installed"
        raise UnsupportedError(f"{message}; install it, or make them with `edgellm kernels build`")


class _Kept:
    """A folder that outlives its use, where TemporaryDirectory would delete it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __enter__(self) -> str:
        return str(self.folder)

    def __exit__(self, *_: object) -> None:
        pass


def _writable(folder: Path) -> Any:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return _Kept(folder)
    except OSError as error:
        warnings.warn(
            f"compiled kernels cannot be kept in {folder} ({error.strerror}), so every start compiles them; "
            "set EDGELLM_HOME to a folder you can write to",
            RuntimeWarning,
            stacklevel=2,
        )
        return tempfile.TemporaryDirectory(prefix="edgellm-")


def _load(objects: dict[str, bytes], level: Level, key: str) -> None:
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), target_machine(host_target(level)))
    for code in objects.values():
        engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    _engines.append(engine)
    for name in objects:
        _loaded[key, name] = engine.get_function_address(f"k_{name}")


# ---- compiling ----
def compile_objects(names: Sequence[str], target: Target, folder: Path, progress: Progress | None) -> None:
    """Compile kernels for a target into `folder` in helper processes: half the time, and Numba's memory goes when they end.

    progress is called in this thread, some times a second; what it raises ends the helpers and is raised here.
    """
    done = 0

    def one_done(name: str) -> None:
        nonlocal done
        done += name != ""
        if progress:
            progress("compile kernels", done, len(names))

    one_done("")
    if not getattr(sys, "frozen", False):
        _compile_in_processes(names, target, folder, one_done)
    rest = [n for n in names if store.read_object(folder, n) is None]
    if rest:  # a frozen application, or a system that lets us start no process
        from .compile import compile_kernels

        try:
            compile_kernels(rest, target, folder, one_done)
        except OSError as error:
            message = f"compiled kernels cannot be written to {folder} ({error.strerror}); free some space there"
            raise ResourceError(f"{message}, or set EDGELLM_HOME to another folder") from None


# Not "python -m": that would take a folder called edgellm in the current directory for this package.
_HELPER = """
import os, sys
sys.path[:] = sys.argv.pop(1).split(os.pathsep)
from edgellm.kernels.cpu.compile import main
main(sys.argv[1:])
"""
_POLL_S = 0.2


def _compile_in_processes(names: Sequence[str], target: Target, folder: Path, one_done: Callable[[str], None]) -> None:
    """one_done(name) is called when a kernel is there, and with "" while one waits, so that whoever waits can give up."""
    count = min(2, os.cpu_count() or 1, len(names))
    path = os.pathsep.join(map(os.path.abspath, sys.path))  # "" is here; a zip may be given by a relative name
    said: SimpleQueue[str | None] = SimpleQueue()  # None when a helper has ended
    processes = []
    try:
        for i in range(count):
            command = [sys.executable, "-c", _HELPER, path, target.to_text(), str(folder), *names[i::count]]
            try:
                process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            except OSError:
                continue
            processes.append(process)
            threading.Thread(target=_watch, args=(process, said.put), daemon=True).start()
        num_running = len(processes)
        while num_running:
            try:
                name = said.get(timeout=_POLL_S)
            except Empty:
                name = ""
            if name is None:
                num_running -= 1
            else:
                one_done(name)
    finally:
        for process in processes:
            if process.poll() is None:  # given up
                process.kill()


def _watch(process: subprocess.Popen[str], say: Callable[[str | None], None]) -> None:
    with process:
        assert process.stdout is not None
        for line in process.stdout:
            say(line.strip())
    say(None)
