"""`edgellm doctor`: one screen of facts, with and without a model, where nothing can be written, and without compiling."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tiny_models import write_tiny

from edgellm import doctor, packing
from edgellm.cli import main
from edgellm.kernels.cpu import bandwidth, cores, isa, limits, objects

GB = 10**9


@pytest.fixture(autouse=True)
def reading(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Stand in for the reader of memory; returns the thread counts it was asked for."""
    asked: list[int] = []

    class Reader:
        def __init__(self, folder: Path, progress: Any = None) -> None:
            assert folder.name == "kernels"

        def read(self, num_threads: int, repeats: int) -> bandwidth.Reading:
            asked.append(num_threads)
            speed = 10e9 * min(num_threads, 3)
            return bandwidth.Reading(num_threads, 2, speed, speed - 1e9, speed + 1e9)

    monkeypatch.setattr(bandwidth, "Reader", Reader)
    return asked


@pytest.fixture
def no_compiling(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("something is compiled")

    monkeypatch.setattr(objects, "addresses", refuse)
    monkeypatch.setattr(objects, "compile_objects", refuse)


@pytest.fixture
def eight_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    found = cores.Cores(physical=8, logical=16, fast=8, allowed=10, usable=5, quota=4.5)
    monkeypatch.setattr(cores, "get_cores", lambda: found)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["doctor", *arguments]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


def run_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    out = run(capsys, *arguments, "--json")
    assert out.count("\n") == 1
    shown: dict[str, Any] = json.loads(out)
    return shown


def test_the_machine(eight_cores: None, reading: list[int], capsys: pytest.CaptureFixture[str]) -> None:
    out = run(capsys)
    assert reading == [1, 2, 3, 4]
    assert len(out.splitlines()) <= 24 and max(map(len, out.splitlines())) <= 140, "one screen"
    for fact in (
        cores.cpu_name(),
        "8 physical, 16 logical",
        "10 of 16 logical cores, a quota of 4.5 CPUs",
        f"{isa.choose().level.name}: {isa.choose().reason}",
        "4: the container may use 4.5 CPUs",
        "2 threads   20.0 GB/s  [19.0 .. 21.0]  2 streams each",
        "writable",
        "numba ",
    ):
        assert fact in out, fact
    assert "model" not in out


def test_json_without_a_model(eight_cores: None, capsys: pytest.CaptureFixture[str]) -> None:
    shown = run_json(capsys, "-t", "2")
    machine = shown["machine"]
    assert (machine["threads"], machine["physical_cores"], machine["cpu_quota"]) == (4, 8, 4.5)
    assert [r["num_threads"] for r in shown["read_bandwidth"]] == [1, 2] and shown["read_bandwidth"][1][
        "median"
    ] == 20e9
    assert shown["model"] is None and shown["versions"]["edgellm"] == doctor.__version__
    assert shown["home"]["problem"] is None


def test_a_model(
    eight_cores: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(packing, "folder", lambda: tmp_path / "packed")
    path = write_tiny(tmp_path / "m.gguf", formats="Q8_0", context=4096)
    shown = run_json(capsys, str(path), "-d", "1000")["model"]
    cache = 1000 * 2 * 2 * 2 * (16 * 2 + 4)  # layers, kv heads, K and V, dims of two bytes and a scale
    assert shown["token_bytes"] - shown["weight_bytes"] == cache == 1000 * shown["cache_token_bytes"]
    assert (shown["cache_type_k"], shown["cache_type_v"]) == ("i16", "i16")
    assert shown["expected_tps"] == pytest.approx(0.85 * 30e9 / shown["token_bytes"])
    assert (shown["layout"], shown["packed_file"], shown["max_context"]) == ("packed", None, 4096)
    out = run(capsys, str(path))
    assert "no packed file" in out and "tokens/s" in out and "with a context of 4096" in out
    written, _ = packing.pack_model(path)
    shown = run_json(capsys, str(path))["model"]
    assert (shown["layout"], shown["packed_file"], shown["packed_problem"]) == ("mapped", str(written), None)
    write_tiny(path, seed=1, formats="Q8_0", context=4096)
    shown = run_json(capsys, str(path))["model"]
    assert (shown["layout"], shown["packed_problem"]) == ("packed", "the model has changed since")
    monkeypatch.setattr(doctor, "available_bytes", lambda: GB // 10)
    assert "weights stay in the file, which is slower" in run(capsys, str(path))


def test_a_model_that_cannot_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_tiny(tmp_path / "m.gguf", metadata={"general.architecture": "mystery"})
    out = run(capsys, str(path), "--quick")
    assert "edgellm cannot run it: " in out and "mystery" in out
    assert run_json(capsys, str(path), "--quick")["model"]["expected_tps"] is None


def test_quick_neither_measures_nor_compiles(
    tmp_path: Path, reading: list[int], no_compiling: None, isolated_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_tiny(tmp_path / "m.gguf")
    out = run(capsys, str(path), "--quick")
    assert not reading and "reading memory" not in out and "nothing was measured" in out
    assert "none compiled yet" in out and "are to be compiled first" in out
    assert not isolated_home.exists(), "looking leaves nothing behind"


def test_a_home_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("EDGELLM_HOME", str(tmp_path / "file" / "home"))
    out = run(capsys, "--quick")
    assert "cannot be written (Not a directory): EDGELLM_HOME names another" in out and "every start" in out
    assert run_json(capsys, "--quick")["home"]["problem"] == "Not a directory"


def test_a_container_s_memory(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(limits, "memory_left", lambda: 3e6)
    assert "3.0 MB free, which is the container's limit" in run(capsys, "--quick")
    assert run_json(capsys, "--quick")["machine"]["is_limited"]


def test_thread_counts() -> None:
    assert doctor.thread_counts(1) == [1]
    assert doctor.thread_counts(6) == [1, 2, 3, 4, 6]
    assert doctor.thread_counts(20) == [1, 2, 3, 4, 6, 8, 12, 16, 20]


@pytest.mark.parametrize(
    ("option", "value"), [("-t", "0"), ("-d", "-1"), ("--max-context", "0"), ("--cache-type-k", "f8")]
)
def test_mistakes_are_one_line(option: str, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", option, value]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_an_unknown_level_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("EDGELLM_ISA", "mmx")
    assert main(["doctor", "--quick"]) == 2
    assert "EDGELLM_ISA=mmx is not an instruction level" in capsys.readouterr().err
