"""Embeddings on tiny models with real kernels: near the reference, the same bits in any company."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cpu_programs as programs
import numpy as np
import pytest
from numpy.typing import NDArray
from tiny_models import write_tiny

from edgellm import LLM, asking, models
from edgellm.errors import ContextError, EdgeLLMError, OptionError
from edgellm.gguf import open_gguf
from edgellm.kernels import reference

PROMPTS = [[70, 75, 72], [i * 7 % 120 for i in range(150)], [5], [i * 11 % 120 for i in range(70)]]


@pytest.fixture(scope="module", params=["llama", "gemma3"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("embed") / "m.gguf"
    return write_tiny(path, request.param, formats="Q8_0", layers=3, window=40)


def pooled(hidden: NDArray[np.float32], pooling: str) -> NDArray[Any]:
    vector = hidden.mean(axis=0, dtype=np.float64) if pooling == "mean" else hidden[-1].astype(np.float64)
    return vector / np.linalg.norm(vector)


@pytest.mark.parametrize("pooling", ["mean", "last"])
def test_near_the_reference(model: Path, pooling: str) -> None:
    with open_gguf(model) as file:
        program = models.get(file.metadata["general.architecture"]).build(file.metadata, file.tensors)
        weights = programs.dequantised(program, file)
        hidden = [reference.run(program.without_logits(), weights, ids) for ids in PROMPTS]
    with LLM.load(model, threads=2, precise=True) as llm:
        found = llm.embed(PROMPTS, pooling=pooling)
        lengths = np.linalg.norm(llm.embed(PROMPTS, pooling=pooling, normalize=False), axis=1)
    assert found.dtype == np.float32 and found.shape == (len(PROMPTS), hidden[0].shape[1])
    for vector, rows, length in zip(found, hidden, lengths, strict=True):
        assert vector @ pooled(rows, pooling) > 0.9999
        expected = rows.mean(axis=0) if pooling == "mean" else rows[-1]
        assert length == pytest.approx(float(np.linalg.norm(expected)), rel=0.02)


@pytest.mark.parametrize("pooling", ["mean", "last"])
def test_the_same_bits_in_any_company(model: Path, pooling: str) -> None:
    with LLM.load(model, threads=1) as llm:
        alone = np.concatenate([llm.embed([ids], pooling=pooling) for ids in PROMPTS])
        assert (llm.embed(PROMPTS[::-1], pooling=pooling)[::-1] == alone).all(), "after others, from the cache"
    with LLM.load(model, threads=3, max_sequences=4, prefill_chunk=37, weights="raw") as llm:
        stream = llm.stream([9, 8, 7], max_tokens=100, ignore_eos=True, temperature=0)
        next(stream)
        assert (llm.embed(PROMPTS, pooling=pooling) == alone).all()
        beside = stream.finish().token_ids
        assert beside == llm.generate([9, 8, 7], max_tokens=100, ignore_eos=True, temperature=0).token_ids


def test_texts_limits_and_errors(model: Path) -> None:
    llm = LLM.load(model, threads=1, max_context=100)
    assert llm.embed("hello").shape == llm.embed(["hello"]).shape == (1, 64)
    assert llm.embed([]).shape == (0, 64) and (llm.embed("hello") == llm.embed([asking.prompt_ids(llm, "hello")])).all()
    assert llm.embed([[5] * 100]).shape == (1, 64)
    with pytest.raises(ContextError, match="101 tokens and max_context is 100"):
        llm.embed([[5], [5] * 101])
    with pytest.raises(OptionError, match="pooling must be one of mean, cls, last, not 'max'"):
        llm.embed("a", pooling="max")
    assert not llm.loaded.engine.has_work
    llm.close()
    with pytest.raises(EdgeLLMError, match="closed"):
        llm.embed("a")
