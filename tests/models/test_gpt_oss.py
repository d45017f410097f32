"""gpt-oss: experts in MXFP4, raw and packed, and what such a file must have."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import reference_models as stored
from tiny_models import write_model

from edgellm import LLM
from edgellm.errors import ModelFileError
from edgellm.gguf import open_gguf

IDS = [int(i) for i in np.random.default_rng(1).integers(3, 288, 60)]


def write(path: Path, without: str = "", **forms: str) -> Path:
    """The stored model without one tensor; forms: of those whose names hold a word. MXFP4 keeps its experts exactly."""
    with open_gguf(stored.unpack("gpt-oss", path.parent)) as file:
        metadata = {key: stored._plain(v) for key, v in file.metadata.items() if np.size(v)}
        weights = stored.FileWeights(file)
        tensors = {name: np.array(weights[name]) for name in file.tensors if name != without}
    kinds = {name: next((f for word, f in forms.items() if word in name), "F32") for name in tensors}
    kinds = {name: form if tensors[name].ndim > 1 and "bias" not in name else "F32" for name, form in kinds.items()}
    return write_model(path, metadata, tensors, kinds | {"default": "F32"})


def test_experts_in_mxfp4_are_read_mapped_and_packed(tmp_path: Path) -> None:
    path = write(tmp_path / "mxfp4.gguf", exps="MXFP4", attn="Q8_0")
    with open_gguf(path) as file:
        assert file.tensors["blk.1.ffn_up_exps.weight"].type_name == "MXFP4"
        exact = stored.FileWeights(file)["blk.1.ffn_up_exps.weight"]
        expected = stored.run_reference(file, np.array(IDS))
    with open_gguf(tmp_path / "gpt-oss.gguf") as file:
        np.testing.assert_array_equal(exact, stored.FileWeights(file)["blk.1.ffn_up_exps.weight"])
    found = []
    for weights in ("raw", "packed"):
        with LLM.load(path, threads=2, spec="off", weights=weights, precise=True) as llm:
            found.append(llm.logits(IDS))
    assert found[0].tobytes() == found[1].tobytes(), "mapped and packed"
    assert np.sqrt(np.mean((found[0] - expected) ** 2)) < 0.03 * expected.std()


def test_every_other_layer_has_a_window_and_all_have_sinks(tmp_path: Path) -> None:
    with open_gguf(write(tmp_path / "a.gguf")) as file:
        program = stored.build(file)
    assert [layer.window for layer in program.cache_layers] == [16, None, 16, None]
    assert all(op.weights for op in program.ops if op.name == "attention")
    assert not any(op.attributes["rope"].yarn_truncate for op in program.ops if op.name == "rope")


@pytest.mark.parametrize("name", ["blk.1.attn_sinks.weight", "blk.2.ffn_gate_exps.bias", "blk.0.ffn_gate_inp.bias"])
def test_what_is_missing_is_named(name: str, tmp_path: Path) -> None:
    with open_gguf(write(tmp_path / "bad.gguf", without=name)) as file, pytest.raises(ModelFileError, match=name):
        stored.build(file)
