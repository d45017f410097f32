"""Kernels that came with an application: found, chosen, never trusted blindly; and what builds them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import cpu_kernels as cpu
import pytest
from tiny_models import write_tiny

from edgellm.errors import OptionError, ResourceError, UnsupportedError
from edgellm.kernels.cpu import ahead, isa, objects, shipped, sources, store, target

LEVEL = isa.choose().level
HERE = target.Target(LEVEL, target.system(), isa.architecture(), "", "", "").name


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No bundle but the one of the test, and no address known."""
    monkeypatch.delenv("EDGELLM_KERNELS", raising=False)
    monkeypatch.delenv("EDGELLM_ISA", raising=False)
    monkeypatch.setattr(shipped, "_IN_PACKAGE", tmp_path / "compiled")
    monkeypatch.setattr(objects, "_loaded", {})


def write_bundle(bundle: Path, level: str = LEVEL.name, hash: str | None = None, **codes: bytes) -> Path:
    """A bundle with some objects, as `build` leaves it."""
    made_from = hash or store.source_hash()
    name = f"{target.system()}-{isa.architecture()}-{level}"
    folder = bundle / shipped.folder_name(name, made_from)
    folder.mkdir(parents=True)
    for kernel, code in codes.items():
        store.write_object(folder, kernel, code)
    (bundle / shipped.MANIFEST).write_text(json.dumps({"sources": made_from}))
    return folder


# ---- where they are found ----
def test_no_bundle_nothing_found(tmp_path: Path) -> None:
    assert shipped.bundles() == [] and shipped.level_names() == [] and shipped.read_objects(["walk"], LEVEL) == {}
    assert objects.choose_level() == isa.choose()


def test_a_named_folder_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named, in_package, beside = tmp_path / "named", tmp_path / "compiled", tmp_path / "bin" / "edgellm-kernels"
    for place, code in ((named, b"1"), (beside, b"2"), (in_package, b"3")):
        write_bundle(place, walk=code)
    assert shipped.read_objects(["walk"], LEVEL) == {"walk": b"3"}
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "app"))
    assert shipped.read_objects(["walk"], LEVEL) == {"walk": b"2"}
    monkeypatch.setenv("EDGELLM_KERNELS", str(named))
    assert shipped.read_objects(["walk"], LEVEL) == {"walk": b"1"}
    assert shipped.bundles() == [named, beside, in_package]


def test_what_one_bundle_lacks_another_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_bundle(tmp_path / "named", walk=b"1")
    write_bundle(tmp_path / "compiled", walk=b"2", work=b"3")
    monkeypatch.setenv("EDGELLM_KERNELS", str(tmp_path / "named"))
    assert shipped.read_objects(["walk", "work", "begin"], LEVEL) == {"walk": b"1", "work": b"3"}


def test_kernels_of_other_sources_are_not_used_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_bundle(tmp_path / "named", hash="0123456789abcdef" * 4, walk=b"1")
    monkeypatch.setenv("EDGELLM_KERNELS", str(tmp_path / "named"))
    assert shipped.read_objects(["walk"], LEVEL) == {}
    with pytest.warns(
        RuntimeWarning, match="EDGELLM_KERNELS=.*holds no kernels of this edgellm for .*kernels build"
    ) as w:
        assert objects.choose_level().level == LEVEL
    assert "\n" not in str(w[0].message)
    monkeypatch.setenv("EDGELLM_KERNELS", str(tmp_path / "nowhere"))
    with pytest.warns(RuntimeWarning, match="nowhere"):
        assert shipped.level_names() == []


@pytest.mark.parametrize("damage", ["empty", "renamed", "one bit", "of another target"])
def test_a_damaged_object_is_not_used(damage: str, tmp_path: Path) -> None:
    folder = write_bundle(tmp_path / "compiled", walk=b"code of walk", work=b"code of work")
    path, other = folder / "walk.o", tmp_path / "linux-riscv-generic-0"
    if damage == "empty":
        path.write_bytes(b"")
    elif damage == "renamed":
        shutil.copy(folder / "work.o", path)
    elif damage == "one bit":
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data)
    else:
        other.mkdir()
        store.write_object(other, "walk", b"code of walk")
        shutil.copy(other / "walk.o", path)
    assert shipped.read_objects(["walk", "work"], LEVEL) == {"work": b"code of work"}


def test_the_best_level_that_came_is_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_bundle(tmp_path / "compiled", level="generic", walk=b"1")
    assert shipped.level_names() == ["generic"] and objects.choose_level().level is isa.GENERIC
    monkeypatch.setenv("EDGELLM_ISA", LEVEL.name)
    assert objects.choose_level().level is LEVEL


# ---- a frozen application lacks the sources ----
def test_a_frozen_application_trusts_its_manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_bundle(tmp_path / "compiled", walk=b"1")
    known = store.source_hash()
    monkeypatch.setattr(store, "source_hash", lambda: "")
    assert shipped.sources() == known and shipped.folders(LEVEL) == [folder]
    assert shipped.read_objects(["walk"], LEVEL) == {"walk": b"1"}
    key = objects.cache_key(LEVEL)
    for text in ("", "[]", "{}", "{", '{"sources": ""}'):
        (tmp_path / "compiled" / shipped.MANIFEST).write_text(text)
        assert shipped.folders(LEVEL) == []
        assert objects.cache_key(LEVEL) != key  # the program itself stands for its kernels
    with pytest.raises(UnsupportedError, match="a frozen application cannot build kernels"):
        ahead.build(["walk"], target.any_target(isa.GENERIC, "linux", "x86-64"), tmp_path)


def test_missing_sources_have_no_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "read_sources", lambda: None)
    assert store.source_hash.__wrapped__() == ""


def test_line_ends_do_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bundle built from a checkout fits a wheel on another system."""
    monkeypatch.setattr(sources, "_FOLDER", tmp_path)
    hashes = set()
    for end in ("\n", "\r\n"):
        for name in ("cpu/a.py", "formats/b.py", "cache_formats/c.py", "cache_layout.py"):
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_bytes(f"x = 1{end}y = 2{end}".encode())
        hashes.add(store.source_hash.__wrapped__())
    assert len(hashes) == 1 and hashes != {""}


def test_without_numba_a_missing_kernel_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "numba" else found(name))
    with pytest.raises(UnsupportedError, match=r"\(a, b, c and 1 more\) and Numba.*kernels build") as told:
        objects.addresses(["a", "b", "c", "d"], LEVEL, tmp_path)
    assert "\n" not in str(told.value)


# ---- building ----
def test_building_keeps_what_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []

    def compile_objects(names: list[str], made_for: target.Target, folder: Path, progress: object) -> None:
        compiled.extend(names)
        for name in names:
            store.write_object(folder, name, name.encode())

    monkeypatch.setattr(objects, "compile_objects", compile_objects)
    made_for = target.named_target("native", target.system())
    folder = ahead.build(["walk", "work"], made_for, tmp_path / "a" / "compiled")
    assert compiled == ["walk", "work"] and folder.name.startswith(f"{HERE}-")
    (folder / "walk.o").write_bytes(b"damaged")
    assert ahead.build(["walk", "work", "begin"], made_for, tmp_path / "a" / "compiled") == folder
    assert compiled == ["walk", "work", "walk", "begin"]
    monkeypatch.setattr(shipped, "_IN_PACKAGE", tmp_path / "a" / "compiled")
    assert shipped.read_objects(["begin"], LEVEL) == {"begin": b"begin"}
    if os.name == "posix":
        assert all(path.stat().st_mode & 0o777 == 0o644 for path in folder.iterdir())
    (tmp_path / "file").write_text("")
    with pytest.raises(ResourceError, match="cannot be written to .*choose another --output"):
        ahead.build(["walk"], made_for, tmp_path / "file" / "x")


def test_names_of_targets() -> None:
    names = target.target_names()
    assert {"x86-64-avx512vnni", "x86-64-avx2", "x86-64-generic", "arm64-i8mm", "arm64-generic"} <= set(names)
    assert not {"arm64-avx2", "x86-64-dotprod"} & set(names)
    for name in names:
        for system in target.SYSTEMS:
            made_for = target.named_target(name, system)
            assert made_for.name == f"{system}-{name}" and target.Target.from_text(made_for.to_text()) == made_for
            assert all(f"+{need}" in made_for.features.split(",") for need in made_for.level.needs)
    with pytest.raises(OptionError, match="--target arm64-avx2 is not known; use native or one of arm64-i8mm"):
        target.named_target("arm64-avx2", "linux")
    with pytest.raises(OptionError, match="--os beos is not known; use one of linux, macos, windows"):
        target.named_target("native", "beos")


def test_every_format_has_its_kernels() -> None:
    named = [*ahead.common_kernels(), *(k for name in cpu.FORMAT_NAMES for k in ahead.format_kernels(name))]
    assert set(named) == set(cpu.ALL_KERNELS) | {"read_memory"}


START = """
import sys
sys.modules["numba"] = None  # importing it fails
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "numba" else found(name, *rest)
from edgellm import LLM
with LLM.load(sys.argv[1], threads=2) as llm:
    done = llm.generate([5, 6, 7], max_tokens=3, temperature=0, ignore_eos=True)
print(llm.loaded.level, done.token_ids)
"""


def test_an_application_starts_without_numba_and_without_compiling(tmp_path: Path) -> None:
    """Built by the command, for any CPU of this machine's level; an empty home, and nothing is written to it."""
    path = write_tiny(tmp_path / "tiny.gguf", formats="Q8_0")
    bundle = cpu.paths.home() / "test-kernels"
    command = [sys.executable, "-m", "edgellm", "kernels", "build", "--model", path, "--output", bundle]
    built = subprocess.run(command, capture_output=True, text=True)
    assert built.returncode == 0 and built.stdout.startswith(f"{HERE}  "), built
    home = tmp_path / "home"
    environment = {**os.environ, "EDGELLM_HOME": str(home), "EDGELLM_KERNELS": str(bundle)}
    results = []
    for variables in (environment, {**environment, "EDGELLM_ISA": "avx2"} if LEVEL.name == "avx2" else environment):
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", START, path], capture_output=True, text=True, env=variables
        )
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        results.append(done.stdout)
    assert results[0] == results[1] and results[0].startswith(f"{LEVEL.name} [")
    assert not home.exists()
