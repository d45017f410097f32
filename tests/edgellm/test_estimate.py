"""LLM.estimate: the numbers of a load before it, without one."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny_models import write_tiny

from edgellm import LLM, estimate
from edgellm.errors import DownloadError, ModelFileError, OptionError
from edgellm.kernels.cpu import objects


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("estimate") / "m.gguf", "gemma3", formats="Q8_0", layers=7, window=64)


def test_it_is_what_a_load_makes_and_compiles_nothing(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def compile_nothing(*_: object) -> None:
        raise AssertionError("it compiles")

    monkeypatch.setattr(objects, "addresses", compile_nothing)
    expected = LLM.estimate(model, max_context=700, max_sequences=3, cache_type_k="q8_0", threads=2)
    monkeypatch.undo()
    assert (expected.architecture, expected.max_context, expected.threads) == ("gemma3", 700, 2)
    assert expected.fits and expected.decode_tps > 0 and expected.prefill_tps > 0 and expected.layout == "packed"
    with LLM.load(model, max_context=700, max_sequences=3, cache_type_k="q8_0", threads=2) as llm:
        assert expected.cache_bytes * 2 == llm.loaded.cache.nbytes
    assert LLM.estimate(model, threads=2).num_missing_kernels >= 0


def test_options_change_it(model: Path) -> None:
    usual = LLM.estimate(model, max_context=2048)
    assert LLM.estimate(model, max_context=1024).cache_bytes < usual.cache_bytes
    assert (
        LLM.estimate(model, max_context=2048, cache_type_k="q4_h", cache_type_v="q4_h").cache_bytes < usual.cache_bytes
    )
    assert LLM.estimate(model, max_context=2048, cache_memory=1 << 22).cache_bytes == 1 << 22
    windowed = LLM.estimate(model, window=128)
    assert windowed.max_context is None and windowed.cache_bytes < usual.cache_bytes
    assert LLM.estimate(model, weights="raw").layout == "raw"
    assert usual.peak_bytes > usual.weight_bytes + usual.cache_bytes


def test_a_machine_without_the_memory(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimate, "available_bytes", lambda: 1 << 20)
    small = LLM.estimate(model)
    assert small.layout == "raw" and not small.fits and small.available_bytes == 1 << 20


def test_what_is_not_here_or_wrong(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"no model")
    with pytest.raises(ModelFileError):
        LLM.estimate(tmp_path / "m.gguf")
    with pytest.raises(DownloadError, match="no model of that name is here; fetch it first"):
        LLM.estimate("owner/repo:Q4")
    with pytest.raises(OptionError):
        LLM.estimate(tmp_path / "m.gguf", threads=0)
