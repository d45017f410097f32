"""Packed files of models: used when they fit, ignored with a line when not, and models too big for memory stay raw."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_models import write_tiny

from edgellm import LLM, packing
from edgellm.cache import memory
from edgellm.errors import ModelFileError, OptionError, ResourceError
from edgellm.gguf import open_gguf
from edgellm.kernels.cpu import packed_file, weights

IDS = list(range(10, 90))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for packed files of one's own; compiled kernels stay the user's, which saves compiling them."""
    folder = tmp_path / "packed"
    monkeypatch.setattr(packing, "folder", lambda: folder)
    return folder


@pytest.fixture
def packs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Formats of matrices that a load packs in memory."""
    seen: list[str] = []
    real = weights.pack_pieces

    def pack_pieces(some: Sequence[weights.Piece], *rest: Any) -> None:
        seen.extend(piece.matrix.format.name for piece in some)
        real(some, *rest)

    monkeypatch.setattr(weights, "pack_pieces", pack_pieces)
    return seen


def logits(path: Path, **options: Any) -> bytes:
    with LLM.load(path, threads=2, **options) as llm:
        return llm.logits(IDS).tobytes()


FORMATS = {"*attn_q.weight": "Q8_0", "token_embd.weight": "F16", "default": "Q4_1"}


# ---- using one ----
@pytest.mark.parametrize("arch", ["llama", "gemma3"])
def test_answers_are_the_same_bits_and_nothing_is_packed(
    arch: str, tmp_path: Path, home: Path, packs: list[str]
) -> None:
    path = write_tiny(tmp_path / "m.gguf", arch, formats=FORMATS, tied=False)
    wanted, raw = logits(path), logits(path, weights="raw")
    assert packs and wanted == raw
    written, nbytes = packing.pack_model(path)
    assert written.parent == home and written.stat().st_size == nbytes
    packs.clear()
    for choice in ("auto", "packed"):
        assert logits(path, weights=choice) == wanted
    assert not packs
    assert logits(path, weights="raw") == wanted


def test_an_output_of_ones_own_is_used_when_named(tmp_path: Path, home: Path, packs: list[str]) -> None:
    path, output = write_tiny(tmp_path / "m.gguf"), tmp_path / "here" / "x.packed"
    wanted = logits(path)
    assert packing.pack_model(path, output)[0] == output
    packs.clear()
    assert logits(path) == wanted and packs  # it does not lie in the usual place
    packs.clear()
    assert logits(path, weights=str(output)) == wanted and not packs
    write_tiny(path, seed=1)
    with pytest.raises(
        ModelFileError, match=r"x.packed is not used: the model has changed since.*edgellm pack"
    ) as raised:
        logits(path, weights=str(output))
    assert "\n" not in str(raised.value)
    with pytest.raises(ModelFileError, match="nothing.packed is not used: it cannot be read"):
        logits(path, weights=str(tmp_path / "nothing.packed"))


def test_an_output_needs_the_suffix(tmp_path: Path, home: Path) -> None:
    with pytest.raises(OptionError, match=r"--output must end in .packed, not 'x.bin'"):
        packing.pack_model(write_tiny(tmp_path / "m.gguf"), tmp_path / "x.bin")


def test_a_closed_model_lets_its_file_go(tmp_path: Path, home: Path) -> None:
    path = write_tiny(tmp_path / "m.gguf")
    written, _ = packing.pack_model(path)
    logits(path)
    gc.collect()
    maps = Path("/proc/self/maps")
    if not maps.exists():
        pytest.skip("no /proc here")
    assert str(written) not in maps.read_text()


# ---- one that does not fit ----
def change_nothing_but_time(path: Path) -> None:
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))


def write_another_of_the_same_time(path: Path) -> None:
    """Other weights in the same places, as a download that restores times might leave them."""
    status = path.stat()
    write_tiny(path, seed=1)
    assert path.stat().st_size == status.st_size
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def write_another(path: Path) -> None:
    write_tiny(path, seed=1)


@pytest.mark.parametrize("change", [change_nothing_but_time, write_another_of_the_same_time, write_another])
def test_a_changed_model_leaves_it_unused_with_one_line(
    change: Any, tmp_path: Path, home: Path, packs: list[str]
) -> None:
    path = write_tiny(tmp_path / "m.gguf")
    written, _ = packing.pack_model(path)
    before = written.read_bytes()
    change(path)
    wanted = logits(path, weights="raw")
    with pytest.warns(RuntimeWarning, match=r"is not used: the model has changed since; .*`edgellm pack") as warned:
        assert logits(path) == wanted
    assert len(warned) == 1 and "\n" not in str(warned[0].message) and packs
    assert written.read_bytes() == before, "only `edgellm pack` writes"
    packing.pack_model(path)
    packs.clear()
    assert logits(path) == wanted and not packs


@pytest.mark.parametrize("damage", ["cut", "foreign", "folder", "layout"])
def test_a_damaged_one_is_ignored_with_one_line(
    damage: str, tmp_path: Path, home: Path, packs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_tiny(tmp_path / "m.gguf")
    wanted = logits(path)
    written, _ = packing.pack_model(path)
    if damage == "cut":
        written.write_bytes(written.read_bytes()[:-4096])
    elif damage == "foreign":
        written.write_bytes(b"something else")
    elif damage == "folder":
        written.unlink()
        written.mkdir()
    else:
        monkeypatch.setattr(packed_file, "layout_version", lambda: "another")
    packs.clear()
    with pytest.warns(RuntimeWarning, match="is not used: it ") as warned:
        assert logits(path) == wanted
    assert len(warned) == 1 and packs


def test_identity_is_that_of_all_parts_and_of_nothing_else(tmp_path: Path) -> None:
    path = write_tiny(tmp_path / "m.gguf")
    with open_gguf(path) as file:
        first = file.identity()
        assert file.identity() == first
    moved = path.rename(tmp_path / "moved.gguf")
    with open_gguf(moved) as file:
        assert file.identity() == first  # it is the same file, wherever it lies
    with open_gguf(write_tiny(tmp_path / "other.gguf", seed=1)) as file:
        assert file.identity() != first


# ---- keeping house ----
def test_listing_and_removing(tmp_path: Path, home: Path) -> None:
    assert packing.list_packed() == []
    paths = [write_tiny(tmp_path / name / "m.gguf") for name in ("a", "b", "c") if not (tmp_path / name).mkdir()]
    written = [packing.pack_model(path)[0] for path in paths]
    assert len(set(written)) == 3
    write_tiny(paths[1], seed=2)
    paths[2].unlink()
    (home / "x.packed").write_bytes(b"something else")
    found = {p.path: p for p in packing.list_packed()}
    assert found[written[0]].problem is None and found[written[0]].model == str(paths[0])
    assert found[written[0]].nbytes == written[0].stat().st_size
    assert found[written[1]].problem == "the model has changed since"
    assert found[written[2]].problem == "its model is not there any more"
    assert found[home / "x.packed"].model is None
    assert packing.remove_packed(paths[0]) == written[0] and not written[0].exists()
    assert packing.remove_packed(paths[0]) is None


def test_what_a_killed_process_left_goes_after_an_hour(tmp_path: Path, home: Path) -> None:
    path = write_tiny(tmp_path / "m.gguf")
    home.mkdir()
    old, new = (home / f".m.{name}{packed_file.PART_SUFFIX}" for name in ("1", "2"))
    for part in (old, new):
        part.write_bytes(b"half")
    os.utime(old, (0, time.time() - 7200))
    written, _ = packing.pack_model(path)
    assert sorted(home.iterdir()) == sorted([new, written])


KILLED = """
import sys
from edgellm import packing
packing.pack_model(sys.argv[1], progress=lambda stage, done, total: print(stage, flush=True) or sys.stdin.read())
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGINT for one process")
def test_ctrl_c_leaves_nothing(tmp_path: Path) -> None:
    import signal

    path, home = write_tiny(tmp_path / "m.gguf"), tmp_path / "home"
    packing.pack_model(path, tmp_path / "warm.packed")  # compiles what is not compiled yet
    (home / "kernels").parent.mkdir()
    (home / "kernels").symlink_to(packing.paths.home().resolve() / "kernels")
    command = [sys.executable, "-c", KILLED, str(path)]
    child = subprocess.Popen(
        command, env={**os.environ, "EDGELLM_HOME": str(home)}, stdin=-1, stdout=-1, stderr=-1, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "pack\n"
    assert len(list((home / "packed").iterdir())) == 1
    child.send_signal(signal.SIGINT)
    child.communicate(timeout=60)
    assert child.returncode != 0 and list((home / "packed").iterdir()) == []


# ---- too big for memory ----
def memory_needed(path: Path) -> int:
    with open_gguf(path) as file, pytest.MonkeyPatch.context() as patch:
        seen: list[int] = []
        patch.setattr(packing, "needed_bytes", lambda *parts: seen.append(sum(parts)) or 1 << 60)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            LLM.load(path, threads=1, max_context=64).close()
        del file
    return seen[0] + packing.WORK_BYTES


def test_a_model_too_big_for_memory_stays_raw_and_says_so(
    tmp_path: Path, home: Path, packs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_tiny(tmp_path / "m.gguf", formats="Q8_0")
    wanted, needed = logits(path, max_context=128), memory_needed(path)
    assert packing.WORK_BYTES < needed < packing.WORK_BYTES + 10e6
    packs.clear()
    monkeypatch.setattr(packing, "available_bytes", lambda: needed - 1)
    with pytest.warns(
        RuntimeWarning, match=r"would take 0.15 GB .* 0.15 GB are available: .*--weights packed"
    ) as warned:
        LLM.load(path, threads=1, max_context=64).close()
    assert not packs and len(warned) == 1 and "\n" not in str(warned[0].message)
    for choice, packed in (("packed", True), ("raw", False)):
        packs.clear()
        assert logits(path, max_context=128, weights=choice) == wanted
        assert bool(packs) == packed, "what a user asks for is done"
    monkeypatch.setattr(packing, "available_bytes", lambda: needed)
    packs.clear()
    LLM.load(path, threads=1, max_context=64).close()
    assert packs


def test_the_cache_counts(tmp_path: Path, home: Path, packs: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_tiny(tmp_path / "m.gguf", context=1 << 20)
    monkeypatch.setattr(packing, "available_bytes", lambda: 160_000_000)
    LLM.load(path, threads=1, max_context=1024).close()
    assert packs
    packs.clear()
    with pytest.warns(RuntimeWarning, match="with the cache"):
        LLM.load(path, threads=1, max_context=1 << 17).close()
    assert not packs


def test_a_packed_file_needs_no_memory_of_its_own(
    tmp_path: Path, home: Path, packs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_tiny(tmp_path / "m.gguf")
    packing.pack_model(path)
    monkeypatch.setattr(packing, "available_bytes", lambda: 0)
    wanted = logits(path)
    packing.remove_packed(path)
    assert logits(path, weights="raw") == wanted and not packs


def test_a_container_s_limit_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    from edgellm.kernels.cpu import limits

    free = memory.available_bytes()
    monkeypatch.setattr(limits, "memory_left", lambda: 1000.0)
    assert memory.available_bytes() == 1000 < free
    monkeypatch.setattr(limits, "memory_left", lambda: -5.0)
    assert memory.available_bytes() == 0


def test_a_place_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_tiny(tmp_path / "m.gguf")
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(ResourceError, match="cannot be written"):
        packing.pack_model(path, tmp_path / "file" / "x.packed")
    monkeypatch.setattr(packing, "folder", lambda: tmp_path / "file" / "packed")
    assert packing.list_packed() == []
    assert len(np.frombuffer(logits(path), np.float32)) > 0  # looking for one there is no trouble
