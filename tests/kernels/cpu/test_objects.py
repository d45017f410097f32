"""Compiled kernels on disk: whatever is wrong with the cache, the right kernel runs, and a warm start needs no Numba."""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import cpu_kernels as cpu
import numpy as np
import pytest
from tiny_models import write_tiny

from edgellm.kernels.cpu import isa, objects, store
from edgellm.kernels.cpu.memory import address
from edgellm.kernels.cpu.slots import ARG, OP_WORDS
from edgellm.kernels.cpu.threads import run_chunk

LEVEL = isa.choose().level
NAMES = ["add_rows", "quantise"]


@pytest.fixture(autouse=True)
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test starts as a new process would, knowing no address."""
    monkeypatch.setattr(objects, "_loaded", {})
    monkeypatch.delenv("EDGELLM_KERNELS", raising=False)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A cache that holds NAMES, taken from the user's own."""
    folder = tmp_path / "kernels" / objects.cache_key(LEVEL)
    folder.mkdir(parents=True)
    for name in NAMES:
        store.write_object(folder, name, get_code(name))
    return tmp_path / "kernels"


def get_code(name: str) -> bytes:
    cpu.get_kernels(LEVEL.name)
    code = store.read_object(cpu.paths.home() / "kernels" / objects.cache_key(LEVEL), name)
    assert code is not None
    return code


def assert_adds(kernel: int) -> None:
    x = cpu.make_rows(np.arange(32, dtype=np.float32)[None])
    record = np.zeros(OP_WORDS, np.int64)
    record[ARG : ARG + 7] = address(x), 0, address(x), 0, address(x), 0, 1
    run_chunk(kernel, record)
    assert np.array_equal(x[0], 2 * np.arange(32))


def forget() -> None:
    objects._loaded.clear()


@pytest.fixture
def no_compiling(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("something is compiled")

    monkeypatch.setattr(objects, "compile_objects", refuse)


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Names that are compiled; the code comes from the user's cache, which takes no time."""
    names: list[str] = []

    def copy(wanted: list[str], target: object, folder: Path, progress: object) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.undo()
            for name in wanted:
                store.write_object(folder, name, CODES[name])
        names.extend(wanted)

    for name in NAMES:
        CODES[name] = get_code(name)
    forget()
    monkeypatch.setattr(objects, "compile_objects", copy)
    yield names


CODES: dict[str, bytes] = {}


# ---- what is on disk ----
def test_a_whole_cache_compiles_nothing(cache: Path, no_compiling: None) -> None:
    said: list[object] = []
    kernels = objects.addresses(NAMES, LEVEL, cache, lambda *what: said.append(what))
    assert set(kernels) == set(NAMES) and not said
    assert_adds(kernels["add_rows"])
    assert objects.addresses(["add_rows"], LEVEL, cache)["add_rows"] == kernels["add_rows"]


def damages(data: bytes) -> dict[str, bytes]:
    flipped = bytearray(data)
    flipped[len(data) // 2] ^= 4
    return {
        "empty": b"",
        "header only": data[:17],
        "hash cut": data[:40],
        "half": data[: len(data) // 2],
        "one byte short": data[:-1],
        "one byte more": data + b"\0",
        "one bit": bytes(flipped),
        "zeros": bytes(len(data)),
        "an older version": b"edgellm object 0\n" + data[17:],
    }


@pytest.mark.parametrize("kind", damages(bytes(100)))
def test_a_damaged_object_is_made_anew(kind: str, cache: Path, compiled: list[str]) -> None:
    path = cache / objects.cache_key(LEVEL) / "add_rows.o"
    whole = path.read_bytes()
    path.write_bytes(damages(whole)[kind])
    assert_adds(objects.addresses(NAMES, LEVEL, cache)["add_rows"])
    assert compiled == ["add_rows"] and path.read_bytes() == whole


def test_an_object_of_another_kernel_is_made_anew(cache: Path, compiled: list[str]) -> None:
    folder = cache / objects.cache_key(LEVEL)
    shutil.copy(folder / "quantise.o", folder / "add_rows.o")
    assert_adds(objects.addresses(NAMES, LEVEL, cache)["add_rows"])
    assert compiled == ["add_rows"]


def test_an_object_of_another_machine_is_not_used(cache: Path, compiled: list[str]) -> None:
    """Neither where it was made nor copied to where ours are looked for. (Here it is sound code, or this would crash.)"""
    ours, theirs = cache / objects.cache_key(LEVEL), cache / "avx2-0123456789abcdef01234567"
    shutil.rmtree(ours)
    theirs.mkdir()
    for name in NAMES:
        store.write_object(theirs, name, CODES[name])
    objects.addresses(NAMES, LEVEL, cache)
    assert sorted(compiled) == sorted(NAMES)
    compiled.clear()
    forget()
    shutil.rmtree(ours)
    shutil.copytree(theirs, ours)
    objects.addresses(NAMES, LEVEL, cache)
    assert sorted(compiled) == sorted(NAMES)


def test_a_folder_in_the_place_of_an_object(cache: Path, compiled: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    path = cache / objects.cache_key(LEVEL) / "add_rows.o"
    path.unlink()
    path.mkdir()
    assert store.read_object(path.parent, "add_rows") is None


def test_levels_and_sources_have_their_own_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {objects.cache_key(level) for level in isa.LEVELS}
    monkeypatch.setattr(Path, "read_bytes", lambda self: b"another text")
    monkeypatch.setattr(store, "source_hash", store.source_hash.__wrapped__)
    assert len(keys | {objects.cache_key(level) for level in isa.LEVELS}) == 2 * len(isa.LEVELS)


@pytest.mark.parametrize("place", ["below a file", "where nothing can be"])
def test_an_unwritable_cache_warns_once_and_works(place: str, tmp_path: Path, compiled: list[str]) -> None:
    (tmp_path / "file").write_text("no folder")
    folder = tmp_path / "file" / "kernels" if place == "below a file" else Path("/proc/edgellm")
    if place != "below a file" and not Path("/proc").is_dir():
        pytest.skip("no /proc here")
    with pytest.warns(RuntimeWarning, match="cannot be kept in .*set EDGELLM_HOME") as warned:
        kernels = objects.addresses(NAMES, LEVEL, folder)
    assert len(warned) == 1 and "\n" not in str(warned[0].message)
    assert_adds(kernels["add_rows"])
    assert objects.addresses(NAMES, LEVEL, folder) == kernels  # in this process they are known now


def test_an_interrupted_write_leaves_nothing(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = cache / objects.cache_key(LEVEL)
    before = sorted(folder.iterdir())

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(store.os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        store.write_object(folder, "new", b"code")
    assert sorted(folder.iterdir()) == before


def test_many_threads_at_once(cache: Path, no_compiling: None) -> None:
    results: list[dict[str, int]] = []
    workers = [
        threading.Thread(target=lambda: results.append(objects.addresses(NAMES, LEVEL, cache))) for _ in range(8)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(results) == 8 and all(r == results[0] for r in results)


# ---- compiling for real ----
def test_compiling_tells_progress_and_fills_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[tuple[str, int, int]] = []
    kernels = objects.addresses(NAMES, LEVEL, tmp_path, lambda *what: said.append(what))
    assert_adds(kernels["add_rows"])
    assert list(dict.fromkeys(said)) == [("compile kernels", done, 2) for done in range(3)]
    files = sorted(p.name for p in (tmp_path / objects.cache_key(LEVEL)).iterdir())
    assert files == ["add_rows.o", "quantise.o"]


def test_who_gives_up_ends_the_helpers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A window that is closed while kernels are compiled: the load ends in a moment, and nothing goes on behind it."""
    started: list[subprocess.Popen[str]] = []
    start = subprocess.Popen
    monkeypatch.setattr(objects.subprocess, "Popen", lambda *a, **k: started.append(start(*a, **k)) or started[-1])
    said: list[int] = []

    def give_up(stage: str, done: int, total: int) -> None:
        said.append(done)
        if len(said) > 1:  # the first word comes before there are helpers
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        objects.addresses(NAMES, LEVEL, tmp_path, give_up)
    assert len(started) == 2 and all(process.wait(30) != 0 for process in started)
    assert sorted(objects.addresses(NAMES, LEVEL, tmp_path)) == sorted(NAMES), "and the next one compiles"


@pytest.mark.parametrize("trouble", ["no process starts", "the process fails", "frozen application"])
def test_without_helper_processes_it_compiles_here(
    trouble: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if trouble == "no process starts":

        def refuse(*_: object, **__: object) -> None:
            raise PermissionError("no processes here")

        monkeypatch.setattr(objects.subprocess, "Popen", refuse)
    elif trouble == "the process fails":
        (tmp_path / "edgellm").mkdir()
        (tmp_path / "edgellm" / "__init__.py").write_text("raise SystemExit(3)")
        monkeypatch.syspath_prepend(str(tmp_path))
    else:
        monkeypatch.setattr(sys, "frozen", True, raising=False)
    said: list[tuple[str, int, int]] = []
    kernels = objects.addresses(["add_rows"], LEVEL, tmp_path / "kernels", lambda *what: said.append(what))
    assert_adds(kernels["add_rows"])
    assert said[-1] == ("compile kernels", 1, 1)


ONE_START = """
import sys
from pathlib import Path
from edgellm.kernels.cpu import isa, objects, store
print(objects.addresses(["nothing"], isa.choose().level, Path(sys.argv[1]))["nothing"] > 0, "numba" in sys.modules)
"""


def test_two_processes_start_at_once_on_an_empty_cache(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", "-c", ONE_START, str(tmp_path)]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    for process in started:
        out, err = process.communicate(timeout=120)
        assert (process.returncode, out, err) == (0, "True False\n", "")
    assert [p.name for p in (tmp_path / objects.cache_key(LEVEL)).iterdir()] == ["nothing.o"]


def test_helpers_compile_this_package_and_not_one_that_lies_around(tmp_path: Path) -> None:
    """Someone's folder called edgellm is the current directory's: it is neither run nor compiled."""
    (tmp_path / "edgellm").mkdir()
    (tmp_path / "edgellm" / "__init__.py").write_text("open('ran', 'w').close()")
    program = tmp_path / "elsewhere" / "start.py"
    program.parent.mkdir()
    program.write_text(ONE_START)
    done = subprocess.run([sys.executable, program, tmp_path / "kernels"], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "True False\n", "")  # no Numba: the helper did it
    assert not (tmp_path / "ran").exists()


WARM_START = """
import sys
from edgellm import LLM
with LLM.load(sys.argv[1], threads=2) as llm:
    assert len(llm.generate([5, 6, 7], max_tokens=3, temperature=0, ignore_eos=True).token_ids) == 3
print(sorted({m.split(".")[0] for m in sys.modules} & {"numba", "gguf", "llvmlite"}))
"""


def test_a_warm_start_does_not_import_numba(tmp_path: Path) -> None:
    path = write_tiny(tmp_path / "tiny.gguf", formats="Q8_0")
    for _ in range(2):  # the first may have to compile
        done = subprocess.run([sys.executable, "-W", "error", "-c", WARM_START, path], capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "['llvmlite']\n"


# ---- what is in an object ----
def elf_symbols(code: bytes) -> tuple[set[str], set[str]]:
    """Names that a 64-bit ELF object defines for others, and names that it wants."""
    (headers,), (count,) = struct.unpack_from("<Q", code, 0x28), struct.unpack_from("<H", code, 0x3C)
    # type, offset, size, number of the section with the names
    sections = [struct.unpack_from("<4xI16xQQI", code, headers + 64 * i) for i in range(count)]
    _, start, size, link = next(s for s in sections if s[0] == 2)
    strings = sections[link][1]
    defined, wanted = set(), set()
    for at in range(start, start + size, 24):
        name, info, section = struct.unpack_from("<IBxH", code, at)
        if info >> 4:  # not local
            text = code[strings + name : code.index(b"\0", strings + name)].decode()
            (defined if section else wanted).add(text)
    return defined, wanted


@pytest.mark.skipif(sys.platform != "linux", reason="objects are ELF on Linux only")
@pytest.mark.parametrize("level", cpu.LEVEL_NAMES)
def test_objects_export_their_kernel_and_want_nothing_of_numba(level: str) -> None:
    cpu.get_kernels(level)
    folder = cpu.paths.home() / "kernels" / objects.cache_key(cpu.get_level(level))
    # Another test may have loaded some of them from a cache of its own: those are not in this one yet.
    for name, code in objects._objects(cpu.ALL_KERNELS, cpu.get_level(level), folder, None).items():
        defined, wanted = elf_symbols(code)
        assert defined == {f"k_{name}"}
        # The oldest x86 has no instructions for the last two: the C library does them, exactly.
        assert wanted <= {"sched_yield", "memcpy", "memset", "memmove", "fmaf", "rintf"}, name
