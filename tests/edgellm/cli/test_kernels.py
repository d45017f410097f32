"""`edgellm kernels`: what lies where, and the options of build. Building itself is tested with what it builds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from edgellm.cli import main
from edgellm.kernels.cpu import ahead, isa, objects, shipped, store, target


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EDGELLM_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(shipped, "_IN_PACKAGE", tmp_path / "none")
    for name in ("EDGELLM_KERNELS", "EDGELLM_ISA"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "home"


def put(folder: Path, *names: str) -> Path:
    folder.mkdir(parents=True)
    for name in names:
        store.write_object(folder, name, b"code")
    return folder


def test_nothing_yet(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kernels"]) == 0
    out = capsys.readouterr().out
    assert f"level {isa.choose().level.name}: " in out and out.endswith("no kernels are compiled yet\n")


def test_show_says_what_is_used(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    level = isa.choose().level
    own = put(home / "kernels" / objects.cache_key(level), "walk", "work")
    put(home / "kernels" / "avx2-0123456789abcdef01234567", "walk")
    name = f"{target.system()}-{isa.architecture()}-{level.name}"
    bundled = put(tmp_path / "app" / shipped.folder_name(name, store.source_hash()), "walk")
    monkeypatch.setenv("EDGELLM_KERNELS", str(tmp_path / "app"))
    assert main(["kernels", "--json"]) == 0
    rows = {row["folder"]: row for row in json.loads(capsys.readouterr().out)}
    size = (own / "walk.o").stat().st_size
    assert rows[str(own)] == {"folder": str(own), "level": level.name, "files": 2, "nbytes": 2 * size, "used": True}
    assert rows[str(bundled)]["level"] == name and rows[str(bundled)]["used"]
    assert [row["used"] for row in rows.values()].count(False) == 1
    assert main(["kernels", "show"]) == 0
    out = capsys.readouterr().out
    assert f"used: {own}" in out and f"used: {bundled}" in out
    assert "1 kernel of other versions or machines" in out and "application brought" in out


def test_clear(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = put(home / "kernels" / "avx2-0123456789abcdef01234567", "walk", "work")
    size = sum(path.stat().st_size for path in folder.iterdir())
    assert main(["kernels", "clear"]) == 0
    assert capsys.readouterr().out == f"deleted 2 kernels, {size} B\n"
    assert not folder.exists() and main(["kernels", "clear"]) == 0


def test_build_asks_for_the_kernels_of_formats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    asked: list[tuple[list[str], str, Path]] = []

    def build(names: list[str], made_for: target.Target, bundle: Path, progress: object) -> Path:
        asked.append((names, made_for.name, bundle))
        return put(tmp_path / made_for.name, "walk")

    monkeypatch.setattr(ahead, "build", build)
    words = ["kernels", "build", "--output", str(tmp_path / "app"), "--formats", "q4_0,F16", "--os", "windows"]
    assert main([*words, "--target", "x86-64-avx2", "--target", "arm64-dotprod"]) == 0
    assert [name for _, name, _ in asked] == ["windows-x86-64-avx2", "windows-arm64-dotprod"]
    assert set(asked[0][0]) > {"tile_q4_0_4", "expand_f16", "matmul", "walk"} and "tile_q4_1_1" not in asked[0][0]
    assert capsys.readouterr().out.splitlines()[1].startswith("windows-arm64-dotprod  1 kernels 53 B: ")
    assert main(["kernels", "build", "--output", str(tmp_path / "other")]) == 0
    assert asked[2][1].startswith(f"{target.system()}-") and "tile_q4_1_1" in asked[2][0]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["make"], "'make' is not something to do with kernels; use one of show, build, clear"),
        (["build"], "build needs --output DIR"),
        (["--target", "native"], "--target is an option of `edgellm kernels build`"),
        (["clear", "--output", "x"], "--output is an option of"),
        (["build", "--output", "x", "--target", "avx2"], "--target avx2 is not known; use native or one of"),
        (["build", "--output", "x", "--os", "dos"], "--os dos is not known; use one of linux, macos, windows"),
        (["build", "--output", "x", "--formats", "Q9"], "--formats Q9 is not known; use all, or some of"),
        (["build", "--output", "x", "--formats", "all", "--model", "y"], "give --model or --formats, not both"),
        (["build", "--output", "x", "--model", "./no.gguf"], "no.gguf"),
    ],
)
def test_wrong_options(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kernels", *words]) == 2
    out, err = capsys.readouterr()
    assert out == "" and says in err and err.count("\n") == 1
