"""Encoders through LLM: poolings, batches, limits, scores, and what they refuse."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import reference_models as stored

from edgellm import LLM
from edgellm.errors import ContextError, EdgeLLMError, OptionError, UnsupportedError

TEXTS = ["hello", "", "the world and the others", "it was you", *[f"that is {i} " * (i % 9 + 1) for i in range(40)]]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stored.unpack("bert", tmp_path_factory.mktemp("bert"))


@pytest.fixture(scope="module")
def llm(path: Path) -> Iterator[LLM]:
    with LLM.load(path, threads=2) as llm:
        yield llm


@pytest.mark.parametrize("pooling", [None, "mean", "cls", "last"])
def test_a_vector_is_pooled_from_those_of_the_tokens(llm: LLM, pooling: str | None) -> None:
    found = llm.embed(TEXTS, pooling=pooling, normalize=False)
    tokens = llm.embed_tokens(TEXTS)
    pick = {"cls": lambda rows: rows[0], "last": lambda rows: rows[-1]}.get(
        str(pooling), lambda rows: rows.astype(np.float64).mean(axis=0).astype(np.float32)
    )
    assert (found == [pick(rows) for rows in tokens]).all()
    assert (llm.embed(TEXTS[2], pooling=pooling, normalize=False) == found[2]).all(), "alone"
    assert np.linalg.norm(llm.embed(TEXTS, pooling=pooling), axis=1) == pytest.approx(1.0)
    assert np.linalg.norm(llm.embed_tokens("hello", normalize=True)[0], axis=1) == pytest.approx(1.0)


def test_many_texts_take_few_steps(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, sizes = llm.loaded.engine, list[int]()
    forward = engine.runner.forward
    monkeypatch.setattr(engine.runner, "forward", lambda batch: (sizes.append(len(batch.token_ids)), forward(batch))[1])
    llm.embed(TEXTS)
    assert len(sizes) <= 6 and max(sizes) <= engine.config.prefill_chunk


def test_what_an_encoder_cannot_do_is_said_in_a_line(llm: LLM, path: Path) -> None:
    message = "this model makes vectors of texts and writes none"
    for ask in (
        lambda: llm.generate("a"),
        lambda: llm.chat([{"role": "user", "content": "a"}]),
        lambda: llm.logits([5]),
        lambda: llm.stream([5]),
    ):
        with pytest.raises(UnsupportedError, match=message):
            ask()
    with pytest.raises(UnsupportedError, match="gives no scores"):
        llm.rerank("a", ["b"])
    with pytest.raises(ContextError, match="has 257 tokens and this model reads at most 256"):
        llm.embed([[5] * 257])
    assert llm.embed([[5] * 256]).shape == (1, 64)
    with pytest.raises(OptionError, match="embed_tokens"):
        llm.embed("a", pooling="none")
    with pytest.raises(OptionError, match="mean, cls, last, not 'max'"):
        llm.embed("a", pooling="max")
    with pytest.raises(OptionError, match="max_context is 300, and this model has places for 256"):
        LLM.load(path, max_context=300)
    with pytest.raises(OptionError, match="takes no window"):
        LLM.load(path, window=30)
    assert not llm.loaded.engine.has_work


def test_nothing_is_kept_and_errors_leave_no_work(path: Path) -> None:
    with LLM.load(path, threads=1, max_context=20, disk_cache=1 << 20) as llm:
        assert llm.max_context == 20 and llm.loaded.storage is None
        first = llm.embed([[7, 8, 9]] * 40)
        assert (first == first[0]).all() and (llm.embed([[7, 8, 9]]) == first[0]).all()
        with pytest.raises(ContextError):
            llm.embed([[7], [7] * 21])
        assert not llm.loaded.engine.has_work
        assert len(list(llm.loaded.cache.tree.root.children)) == 0
    with pytest.raises(EdgeLLMError, match="closed"):
        llm.embed("a")


def test_reranking(tmp_path: Path) -> None:
    with LLM.load(stored.unpack("xlm-roberta-rank", tmp_path), threads=2) as llm:
        documents = ["the world", "hello you", "", "the world"]
        ranking = llm.rerank("hello", documents)
        assert ranking.scores.shape == (4,) and ranking.scores[0] == ranking.scores[3]
        assert ranking.scores[ranking.order].tolist() == sorted(ranking.scores.tolist(), reverse=True)
        assert ranking.order.index(0) < ranking.order.index(3), "equal ones stay in order"
        assert ranking.top(2) == [(i, float(ranking.scores[i])) for i in ranking.order[:2]]
        assert (llm.rerank("hello", [documents[1]]).scores == ranking.scores[1]).all(), "alone"
        assert llm.rerank("hello", []).order == []
        with pytest.raises(OptionError, match="scores"):
            llm.embed("hello")
        assert llm.embed("hello", pooling="cls").shape == (1, 64)
