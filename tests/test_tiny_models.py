"""The tiny models that other tests stand on are what they claim to be."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from random_weights import PLAIN, SCALES
from tiny_models import write_tiny
from tiny_vocabulary import make_bpe, make_spm

from edgellm.gguf import open_gguf
from edgellm.kernels import formats as kernel_formats


def test_tensors_have_the_converters_names_and_shapes(tmp_path: Path) -> None:
    with open_gguf(write_tiny(tmp_path / "l.gguf", head_dim=32, tied=False, biases=True)) as model:
        assert model.get("general.architecture") == "llama"
        assert model.get("llama.attention.key_length") == 32
        shapes = {name: t.shape for name, t in model.tensors.items() if not name.startswith("blk.1")}
    assert shapes["blk.0.attn_q.weight"] == (128, 64) and shapes["blk.0.attn_k.bias"] == (64,)
    assert shapes["output.weight"] == (128, 64) and shapes["blk.0.ffn_down.weight"] == (64, 96)
    assert len(shapes) == 3 + 7 + 2 + 7


def test_gemma3_has_its_norms_and_window(tmp_path: Path) -> None:
    with open_gguf(write_tiny(tmp_path / "g.gguf", "gemma3", layers=1, window=16)) as model:
        assert model.get("gemma3.attention.sliding_window") == 16
        assert sum("norm" in name for name in model.tensors) == 7
        assert model.get("tokenizer.ggml.model") == "llama"


@pytest.mark.parametrize("form", [form for form in (*PLAIN, *SCALES) if form != "F32"])
def test_every_format_holds_weights_of_the_right_spread(tmp_path: Path, form: str) -> None:
    path = write_tiny(tmp_path / "m.gguf", layers=1, hidden=256, ffn=512, formats={"default": form, "*embd*": "Q8_0"})
    with open_gguf(path) as model:
        info = model.tensors["blk.0.ffn_up.weight"]
        assert (info.type_name, info.shape) == (form, (512, 256))
        assert model.tensors["token_embd.weight"].type_name == "Q8_0"
        assert model.tensors["output_norm.weight"].type_name == "F32"
        values = kernel_formats.get(form).dequantize(model.data(info.name).reshape(512, -1))
    assert values.shape == info.shape and np.isfinite(values).all()
    assert abs(values.mean()) < 0.1 * values.std() and 0.8 < values.std() * 16 < 1.2


def test_weights_depend_on_name_and_seed_only(tmp_path: Path) -> None:
    def read(name: str, **options: object) -> bytes:
        with open_gguf(write_tiny(tmp_path / "m.gguf", layers=1, **options)) as model:  # type: ignore[arg-type]
            return model.data(name).tobytes()

    name = "blk.0.attn_v.weight"
    assert read(name) == read(name, tied=False, vocab=64) != read(name, seed=1)


def test_metadata_can_be_replaced_and_dropped(tmp_path: Path) -> None:
    path = write_tiny(
        tmp_path / "m.gguf",
        metadata={"general.architecture": "unknownarch", "llama.attention.head_count": 0, "x": [1, 2]},
        rope={"scaling.type": "yarn", "scaling.factor": 4.0},
        rope_factors=[1.0] * 8,
        drop=["llama.context_length", "output_norm.weight"],
    )
    with open_gguf(path) as model:
        assert model.get("general.architecture") == "unknownarch"
        assert model.get("llama.attention.head_count") == 0
        assert model.get("llama.rope.scaling.type") == "yarn"
        assert model.get("x").tolist() == [1, 2]
        assert "llama.context_length" not in model.metadata and "output_norm.weight" not in model.tensors
        assert model.data("rope_freqs.weight").view(np.float32).tolist() == [1.0] * 8


def test_rows_that_do_not_fit_a_format_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Q4_K needs rows of a multiple of 256 values, not 64"):
        write_tiny(tmp_path / "m.gguf", formats="Q4_K")


@pytest.mark.parametrize("vocab", [16, 64, 128, 300, 384, 1000, 2000])
def test_vocabularies_are_whole(vocab: int) -> None:
    bpe, spm = make_bpe(vocab), make_spm(vocab)
    for keys in (bpe, spm):
        tokens = keys["tokenizer.ggml.tokens"]
        assert len(tokens) == len(set(tokens)) == len(keys["tokenizer.ggml.token_type"]) == vocab
    assert len(spm["tokenizer.ggml.scores"]) == vocab
    known = set(bpe["tokenizer.ggml.tokens"])
    for merge in bpe.get("tokenizer.ggml.merges", []):
        a, b = merge.split(" ")
        assert {a, b, a + b} <= known
