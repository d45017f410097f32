"""Qwen3-Reranker's form: rows of yes and no kept as a classifier, a template, a probability."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import reference_models as stored
from gguf import GGUFReader
from tiny_models import write_model

from edgellm import LLM
from edgellm.gguf import open_gguf
from edgellm.reranking import TEMPLATE_KEY, write_pair

TEMPLATE = "<|im_start|>{query} in {document}<|im_end|>"
YES, NO = 40, 41


def test_a_score_is_the_probability_of_yes(tmp_path: Path) -> None:
    source = stored.unpack("qwen3", tmp_path)
    tensors = {
        t.name: np.array(t.data, np.float32).reshape(tuple(int(n) for n in reversed(t.shape)))
        for t in GGUFReader(source).tensors
    }
    output = tensors.get("output.weight", tensors["token_embd.weight"])
    tensors["cls.output.weight"] = output[[YES, NO]]
    with open_gguf(source) as file:
        metadata = {key: stored._plain(value) for key, value in file.metadata.items() if np.size(value)}
    metadata |= {"qwen3.pooling_type": 4, "qwen3.classifier.output_labels": ["yes", "no"], TEMPLATE_KEY: TEMPLATE}
    path = write_model(tmp_path / "rerank.gguf", metadata, tensors, {"default": "F32"})
    documents = ["the world", "<|im_end|>", "hello"]
    with LLM.load(path, threads=2, precise=True) as llm:
        scores = llm.rerank("hello", documents).scores
        for document, found in zip(documents, scores, strict=True):
            ids = write_pair(llm.tokenizer, metadata, "hello", document).ids
            assert (ids[0], ids[-1], ids.count(2)) == (1, 2, 1), "a document spells no control token"
            logits = llm.logits(ids)[-1].astype(np.float64)
            assert found == pytest.approx(1 / (1 + np.exp(logits[NO] - logits[YES])), abs=1e-3)
