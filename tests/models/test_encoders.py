"""Encoders: token types, texts of several splits, scores, and files that are refused."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import reference_models as stored

from edgellm import LLM, models
from edgellm.embedding import Text, embed_tokens, score
from edgellm.errors import EdgeLLMError
from edgellm.gguf import open_gguf

HALVES = np.repeat([0, 1], 100)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("encoders")


@pytest.mark.parametrize("name", ["bert", "nomic-bert"])
def test_the_second_part_of_a_text_has_types_of_its_own(name: str, files: Path) -> None:
    ids, rows, plain = stored.expected(name)
    typed = stored.expected_more(name, "typed")
    assert np.abs(typed - plain).max() > 0.1
    path = stored.unpack(name, files)
    with open_gguf(path) as file:
        assert np.abs(stored.run_reference(file, ids, rows, HALVES) - typed).max() <= 1e-4 * np.abs(typed).max()
    with LLM.load(path, threads=2) as llm:
        text = [int(i) for i in ids]
        texts = [Text(text), Text(text, HALVES.tolist()), Text(text[:1], [1])]
        found = embed_tokens(llm._shared, texts, normalize=False)
        assert np.abs(found[1][rows] - typed).max() < 0.01 * np.abs(typed).max()
        assert np.abs(found[0][rows] - plain).max() < 0.01 * np.abs(plain).max(), "beside it"


@pytest.mark.parametrize(("name", "size"), [("nomic-bert", 600), ("gemma-embedding", 511)])
def test_texts_longer_than_a_split_see_both_ends(name: str, size: int, files: Path) -> None:
    ids = np.random.default_rng(3).integers(5, 288, size)
    path = stored.unpack(name, files)
    with open_gguf(path) as file:
        expected = stored.run_reference(file, ids)
    with LLM.load(path, threads=2) as llm:
        found = stored.answer(llm, ids)
        last = [int(i) for i in ids[:-1]] + [int(ids[-1]) % 200 + 7]
        changed = llm.embed_tokens([last])[0]
    assert np.abs(found - expected).max() < 0.01 * np.abs(expected).max()
    assert (changed[0] != found[0]).any(), "the first token sees the last"


def test_scores_are_what_transformers_says(files: Path) -> None:
    ids, _, _ = stored.expected("xlm-roberta-rank")
    with LLM.load(stored.unpack("xlm-roberta-rank", files), threads=2) as llm:
        found = score(llm._shared, llm._head, [Text([int(i) for i in ids]), Text([int(i) for i in ids[:50]])])
    expected = stored.expected_more("xlm-roberta-rank", "scores")
    assert found.shape == (2,) and found[0] == pytest.approx(expected[0], abs=2e-3) and found[1] != found[0]


BERT: dict[str, Any] = {
    "general.architecture": "bert",
    "tokenizer.ggml.tokens": [str(i) for i in range(20)],
    "tokenizer.ggml.token_type_count": 2,
    "bert.block_count": 1,
    "bert.context_length": 16,
    "bert.embedding_length": 8,
    "bert.feed_forward_length": 24,
    "bert.attention.head_count": 2,
    "bert.attention.layer_norm_epsilon": 1e-12,
    "bert.attention.causal": False,
}
LAYER = {
    "attn_q": (8, 8),
    "attn_k": (8, 8),
    "attn_v": (8, 8),
    "attn_output": (8, 8),
    "ffn_up": (24, 8),
    "ffn_down": (8, 24),
    "attn_output_norm": (8,),
    "layer_output_norm": (8,),
}
SHAPES: dict[str, tuple[int, ...]] = {
    "token_embd.weight": (20, 8),
    "token_types.weight": (2, 8),
    "position_embd.weight": (16, 8),
    "token_embd_norm.weight": (8,),
    "token_embd_norm.bias": (8,),
    **{f"blk.0.{name}.weight": shape for name, shape in LAYER.items()},
    **{f"blk.0.{name}.bias": (8,) for name in ("attn_output_norm", "layer_output_norm")},
}


def build(shapes: dict[str, Any] | None = None, **keys: Any) -> Any:
    metadata = BERT | {f"bert.{key.replace('__', '.')}": value for key, value in keys.items()}
    metadata = {key: value for key, value in metadata.items() if value is not None}
    tensors = {
        name: SimpleNamespace(shape=shape) for name, shape in (SHAPES | (shapes or {})).items() if shape is not None
    }
    return models.get("bert").build(metadata, tensors)


def test_what_a_bert_file_says() -> None:
    program = build()
    assert (program.makes_logits, program.is_causal, program.max_positions) == (False, False, 16)
    assert len(program.cache_layers) == 1 and program.pooling.kind == "mean"
    fused = {f"blk.0.attn_{part}.weight": None for part in "qkv"} | {"blk.0.attn_qkv.weight": (24, 8)}
    assert build(fused).ops != program.ops
    assert build({"cls.output.weight": (1, 8), "cls.output.bias": (1,)}).pooling.kind == "rank"
    assert build({"cls.output.weight": (1, 8)}, pooling_type=2).pooling.kind == "cls"


@pytest.mark.parametrize(
    ("shapes", "keys", "says"),
    [
        ({"position_embd.weight": None}, {}, "position_embd.weight"),
        ({"position_embd.weight": (15, 8)}, {}, "position_embd.weight has the shape"),
        ({"token_types.weight": (3, 8)}, {}, "token_types.weight has the shape"),
        ({"extra.weight": (3, 8)}, {}, "extra.weight"),
        ({"cls.output.weight": (2, 8)}, {}, "cls.output.weight has the shape"),
        ({}, {"attention__causal": True}, "bert.attention.causal"),
        ({}, {"attention__layer_norm_epsilon": None}, "bert.attention.layer_norm_epsilon"),
        ({}, {"pooling_type": 9}, "pooling of the type 9"),
        ({}, {"pooling_type": 4}, "cls.output.weight"),
        ({}, {"pooling_type": "mean"}, "bert.pooling_type"),
        ({}, {"classifier__output_labels": 3}, "output_labels"),
        ({}, {"dense_2_feat_out": 16}, "dense_2.weight"),
    ],
)
def test_files_that_lie_are_refused_in_one_line(shapes: dict[str, Any], keys: dict[str, Any], says: str) -> None:
    with pytest.raises(EdgeLLMError) as refused:
        build(shapes, **keys)
    assert says in str(refused.value) and "\n" not in str(refused.value)
