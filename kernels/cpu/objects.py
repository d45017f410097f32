"""Machine code kept as object files and loaded with llvmlite alone: a warm start never imports Numba.

An object belongs to one CPU (name and features), instruction level, Numba and llvmlite version and text of all kernel
sources; together they name its folder. A damaged, foreign or unwritable cache means compiling again, never an error and
never a wrong kernel. Knows no kernel's meaning; `compile.py` makes objects in processes of its own, so that this one
stays small. Next hop: `tape.py` calls the addresses.
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
from typing import Any

import llvmlite
import llvmlite.binding as llvm

from ...errors import ResourceError
from .isa import Level
from .sources import read_sources

CHUNK_FUNCTION = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 4)
"""C type of a chunk kernel; calling one releases Python's lock."""

Progress = Callable[[str, int, int], None]
_MAGIC = b"edgellm object 1\n"
_lock = threading.Lock()
_loaded: dict[tuple[str, str], int] = {}
_engines: list[Any] = []  # machine code lives as long as the process: addresses are never invalidated


def target_machine(level: Level) -> Any:
    """LLVM's code generator for `level`: exactly this CPU, or the oldest of its architecture."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()
    target = llvm.Target.from_default_triple()
    name, features = "", ""
    if level.tuned or not llvm.get_process_triple().startswith("x86_64"):
        name, features = llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
    return target.create_target_machine(
        cpu=name, features=features, opt=3, reloc="static", codemodel="jitdefault", jit=True
    )


def _numba_version() -> bytes:
    """Read from the file that states it: importing Numba takes half a second."""
    from importlib.util import find_spec

    spec = find_spec("numba")
    if spec is None or spec.origin is None:
        return b""
    try:
        return (Path(spec.origin).parent / "_version.py").read_bytes()
    except OSError:  # a frozen application has byte code instead of files
        import numba

        return str(numba.__version__).encode()


def cache_key(level: Level) -> str:
    """Name of the folder for everything an object depends on."""
    digest = hashlib.sha256()
    host = f"{llvm.get_process_triple()} {llvm.get_host_cpu_name()} {llvm.get_host_cpu_features().flatten()}"
    for part in (host.encode(), level.name.encode(), llvmlite.__version__.encode(), _numba_version(), read_sources()):
        digest.update(len(part).to_bytes(8, "little") + part)
    return f"{level.name}-{digest.hexdigest()[:24]}"


def _seal(folder: Path, name: str, code: bytes) -> bytes:
    """Checksum of an object and of where it belongs: one that was renamed or copied here is not taken for another."""
    return hashlib.sha256(f"{folder.name}/{name}\n".encode() + code).digest()


def write_object(folder: Path, name: str, code: bytes) -> None:
    """Put one object into the cache; other processes see all of it or nothing."""
    handle, temporary = tempfile.mkstemp(dir=folder, prefix=name)
    try:
        with os.fdopen(handle, "wb") as f:
            f.write(_MAGIC + _seal(folder, name, code) + code)
        os.replace(temporary, folder / f"{name}.o")
    except BaseException:
        os.unlink(temporary)
        raise


def read_object(folder: Path, name: str) -> bytes | None:
    """-> an object of the cache, or None if it is missing, damaged or another's."""
    try:
        data = (folder / f"{name}.o").read_bytes()
    except OSError:
        return None
    start = len(_MAGIC) + 32
    code = data[start:]
    sound = data.startswith(_MAGIC) and _seal(folder, name, code) == data[len(_MAGIC) : start]
    return code if sound else None


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
    found = {n: read_object(folder, n) for n in names}
    missing = [n for n, code in found.items() if code is None]
    if missing:
        with _writable(folder) as writable:
            compile_objects(missing, level, Path(writable), progress)
            found.update({n: read_object(Path(writable), n) for n in missing})
    complete = {n: code for n, code in found.items() if code is not None}
    if len(complete) < len(names):
        lost = ", ".join(n for n in names if n not in complete)
        raise ResourceError(f"compiled kernels vanished from {folder} while being read ({lost}); start again")
    return complete


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
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), target_machine(level))
    for code in objects.values():
        engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    _engines.append(engine)
    for name in objects:
        _loaded[key, name] = engine.get_function_address(f"k_{name}")


# ---- compiling ----
def compile_objects(names: Sequence[str], level: Level, folder: Path, progress: Progress | None) -> None:
    """Compile kernels into `folder` in helper processes: half the time, and Numba's memory goes when they end."""
    done = 0
    told = threading.Lock()

    def one_done(_: str) -> None:
        nonlocal done
        with told:
            done += 1
            if progress:
                progress("compile kernels", done, len(names))

    if progress:
        progress("compile kernels", 0, len(names))
    if not getattr(sys, "frozen", False):
        _compile_in_processes(names, level, folder, one_done)
    rest = [n for n in names if read_object(folder, n) is None]
    if rest:  # a frozen application, or a system that lets us start no process
        from .compile import compile_kernels

        try:
            compile_kernels(rest, level, folder, one_done)
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


def _compile_in_processes(names: Sequence[str], level: Level, folder: Path, one_done: Callable[[str], None]) -> None:
    count = min(2, os.cpu_count() or 1, len(names))
    path = os.pathsep.join(map(os.path.abspath, sys.path))  # "" is here; a zip may be given by a relative name
    watchers = []
    for i in range(count):
        command = [sys.executable, "-c", _HELPER, path, level.name, str(folder), *names[i::count]]
        try:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        except OSError:
            continue
        watcher = threading.Thread(target=_watch, args=(process, one_done), daemon=True)
        watcher.start()
        watchers.append(watcher)
    for watcher in watchers:
        watcher.join()


def _watch(process: subprocess.Popen[str], one_done: Callable[[str], None]) -> None:
    with process:
        assert process.stdout is not None
        for line in process.stdout:
            one_done(line.strip())
