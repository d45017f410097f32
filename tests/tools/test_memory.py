"""Peak memory keeps its bar, file + cache + 150 MB, on the real models; and what keeps it there."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import memory
import numpy as np
import pytest
from tiny_models import write_tiny

from edgellm import LLM
from edgellm.gguf import open_gguf
from edgellm.kernels.cpu import memory as machine_memory
from edgellm.kernels.cpu import weights

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="peaks are counted by getrusage")


@pytest.mark.model
@pytest.mark.parametrize("name", ["smollm2", "gemma3"])
@pytest.mark.parametrize("layout", ["packed", "raw"])
def test_peak_is_at_most_file_and_cache_and_150_mb(name: str, layout: str, request: pytest.FixtureRequest) -> None:
    figures = memory.run_apart(str(request.getfixturevalue(f"{name}_path")), layout, 512, 64)
    assert figures["bar_bytes"] == figures["file_bytes"] + figures["cache_bytes"] + 150_000_000
    assert figures["file_bytes"] < figures["peak_bytes"] <= figures["bar_bytes"], memory.report_text(
        name, layout, figures
    )


def test_what_the_parent_held_does_not_count(tmp_path: Path) -> None:
    held = np.ones(300 << 20, np.uint8)
    figures = memory.run_apart(str(write_tiny(tmp_path / "m.gguf", context=4096)), "raw", 20, 4)
    assert held.all() and 20e6 < figures["peak_bytes"] < 300e6


def test_a_bar_that_is_passed_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(write_tiny(tmp_path / "m.gguf", context=4096))
    monkeypatch.setattr(memory, "ALLOWANCE_BYTES", 1000)
    assert memory.main([path, "-p", "20", "-n", "4", "--weights", "raw"]) == 1
    text, last = capsys.readouterr().out.rstrip().rsplit("\n", 1)
    assert "OVER" in text
    assert json.loads(last)["results"][0]["peak_bytes"] > 10_000_000


def test_packing_piece_by_piece_changes_no_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_tiny(tmp_path / "m.gguf", formats="Q8_0", vocab=131)
    ids = list(range(100))
    with LLM.load(path, threads=2) as llm:
        whole, wanted = llm.loaded.engine.runner, llm.logits(ids).copy()
        sizes = {n: m.data.copy() for n, m in _matrices(whole).items()}
    forgotten: list[str] = []
    monkeypatch.setattr(weights, "_PACK_PIECE_BYTES", 1)
    monkeypatch.setattr("edgellm.gguf.GGUFFile.forget", lambda self, name: forgotten.append(name))
    with LLM.load(path, threads=2) as llm:
        assert forgotten.count("token_embd.weight") == 17  # groups of eight rows
        assert all((m.data == sizes[n]).all() for n, m in _matrices(llm.loaded.engine.runner).items())
        assert (llm.logits(ids) == wanted).all()


def _matrices(runner: object) -> dict[str, weights.Matrix]:
    found: dict[str, weights.Matrix] = runner.backend.weights.matrices  # type: ignore[attr-defined]
    return found


def test_headers_are_forgotten_and_read_again(tmp_path: Path) -> None:
    with open_gguf(write_tiny(tmp_path / "m.gguf", vocab=4000)) as file:
        tokens = list(file.metadata["tokenizer.ggml.tokens"])
        file.forget_headers()
        assert list(file.metadata["tokenizer.ggml.tokens"]) == tokens
        assert file.data("token_embd.weight").any()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_released_code_can_be_called_again() -> None:
    import llvmlite.binding as llvm

    def resident() -> int:
        return memory.now_bytes()["mapped"]

    llvm.initialize_native_target()
    triple = llvm.get_process_triple()
    llvm.parse_assembly("define i32 @f() { ret i32 1 }").verify()
    before = resident()
    machine_memory.release_code("libllvmlite")
    assert resident() < before
    llvm.parse_assembly("define i32 @f() { ret i32 1 }").verify()
    assert llvm.get_process_triple() == triple
    machine_memory.release_code("no such library")
