"""The program that writes big random models, made to write a small one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import synthesise
from tiny_models import write_tiny

from edgellm.gguf import open_gguf
from edgellm.inspect import summarise

SIZES = ["--hidden", "256", "--ffn", "512", "--layers", "8", "--heads", "4", "--kv-heads", "2", "--head-dim", "64"]


def run(tmp_path: Path, *more: str) -> Path:
    source = write_tiny(tmp_path / "source.gguf", vocab=400)
    out = tmp_path / "out.gguf"
    assert synthesise.main([str(out), "--vocabulary", str(source), *SIZES, *more]) == 0
    return out


@pytest.mark.parametrize(
    ("form", "embedding", "value", "query"),
    [("Q4_0", "Q6_K", "Q4_0", "Q4_0"), ("Q4_K_M", "Q6_K", "Q6_K", "Q4_K"), ("Q8_0", "Q8_0", "Q8_0", "Q8_0")],
)
def test_formats_are_mixed_as_llama_cpp_does(tmp_path: Path, form: str, embedding: str, value: str, query: str) -> None:
    with open_gguf(run(tmp_path, "--format", form)) as model:
        assert model.tensors["token_embd.weight"].type_name == embedding
        assert model.tensors["blk.0.attn_v.weight"].type_name == value
        assert model.tensors["blk.0.attn_q.weight"].type_name == query
        assert "output.weight" not in model.tensors
        norm = model.data("output_norm.weight").view(np.float32)
        assert norm.shape == (256,) and 0.9 < norm.mean() < 1.1  # the last tensor lies where the table says


def test_the_vocabulary_is_the_sources(tmp_path: Path) -> None:
    with open_gguf(run(tmp_path, "--untied")) as model, open_gguf(tmp_path / "source.gguf") as source:
        for key, value in source.metadata.items():
            if key.startswith("tokenizer."):
                copy = model.metadata[key]
                assert type(copy) is type(value)
                assert copy == value if isinstance(value, (str, int, bool)) else list(copy) == list(value)
        assert model.tensors["output.weight"].shape == (400, 256)
        found = summarise(model)
        assert (found.num_layers, found.head_dim, found.context_length) == (8, 64, 131072)


def test_an_existing_file_is_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = run(tmp_path)
    with pytest.raises(SystemExit):
        synthesise.main([str(out), "--vocabulary", str(out)])
    assert "exists: remove it first" in capsys.readouterr().err
