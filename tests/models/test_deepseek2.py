"""deepseek2: files that keep keys and values in one matrix, sizes, scores, what is refused."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import reference_models as stored
from tiny_models import write_model

from edgellm import LLM, models
from edgellm.errors import ModelFileError, UnsupportedError
from edgellm.gguf import open_gguf
from edgellm.kernels.ops import CacheLayer
from edgellm.kernels.rope import magnitude

IDS = np.random.default_rng(1).integers(3, 288, 90)


def write(path: Path, *, old: bool = False, form: str = "F32", without: tuple[str, ...] = (), **changes: Any) -> Path:
    """deepseek2-v3's first layers, dense; old: as converters wrote them before there were attn_k_b and attn_v_b."""
    with open_gguf(stored.unpack("deepseek2-v3", path.parent)) as file:
        keys = {f"deepseek2.{key}": value for key, value in changes.items()}
        metadata = {
            key: stored._plain(v) for key, v in file.metadata.items() if np.size(v) and key not in without
        } | keys
        weights = stored.FileWeights(file)
        tensors = {name: np.array(weights[name]) for name in file.tensors if not name.startswith(("blk.1", "blk.2"))}
    if old:
        k, v = (tensors.pop(f"blk.0.attn_{c}_b.weight") for c in "kv")
        both = np.concatenate([k.transpose(0, 2, 1), v], axis=1)
        tensors["blk.0.attn_kv_b.weight"] = both.reshape(-1, both.shape[2])
        lengths = {"key": both.shape[1] - 64 + 16, "value": 64}
        metadata |= {f"deepseek2.attention.{key}_length": n for key, n in lengths.items()}
        metadata = {key: value for key, value in metadata.items() if not key.endswith("_mla")}
    kinds = {name: form if values.ndim > 1 else "F32" for name, values in tensors.items()}
    return write_model(path, metadata | {"deepseek2.block_count": 1} | keys, tensors, kinds | {"default": "F32"})


def build(path: Path) -> Any:
    with open_gguf(path) as file:
        return stored.build(file)


def test_old_files_say_the_same(tmp_path: Path) -> None:
    answers = []
    for old in (False, True):
        path = write(tmp_path / f"{old}.gguf", old=old)
        kept = build(path).cache_layers
        assert kept == ((CacheLayer(4, 48, value_dim=64),) if old else (CacheLayer(1, 80, value_dim=64),))
        with open_gguf(path) as file:
            answers.append(stored.run_reference(file, IDS))
        with LLM.load(path, threads=2, spec="off", cache_type_k="f16", cache_type_v="f16") as llm:
            found = llm.logits([int(i) for i in IDS])
        assert np.abs(found - answers[-1]).max() < 0.02 * answers[-1].std()
    np.testing.assert_allclose(answers[0], answers[1], rtol=0, atol=1e-4 * np.abs(answers[0]).max())


@pytest.mark.parametrize("cache_type", ["f16", "bf16", "fp8", "i16", "q8_0", "q4_h"])
@pytest.mark.filterwarnings("ignore:--cache-type")
def test_every_cache_type_keeps_the_short_vectors(cache_type: str, tmp_path: Path) -> None:
    path = write(tmp_path / "new.gguf", form="Q8_0")
    names = {"fp8": ("e4m3", "e5m2")}.get(cache_type, (cache_type, cache_type))
    with open_gguf(path) as file:
        expected = stored.run_reference(file, IDS)
    with LLM.load(path, threads=2, spec="off", cache_type_k=names[0], cache_type_v=names[1]) as llm:
        found = llm.logits([int(i) for i in IDS])
    assert np.sqrt(np.mean((found - expected) ** 2)) / expected.std() < (0.4 if cache_type in ("q4_h", "fp8") else 0.1)


def test_scores_of_yarn_are_longer_and_what_turns_is_not(tmp_path: Path) -> None:
    program = build(write(tmp_path / "a.gguf"))
    ropes = [op.attributes["rope"] for op in program.ops if op.name == "rope"]
    (scale,) = [op.attributes["scale"] for op in program.ops if op.name == "attention"]
    assert scale == pytest.approx((1 + 0.1 * math.log(40)) ** 2 / math.sqrt(48), rel=1e-6)
    assert [magnitude(rope) for rope in ropes] == pytest.approx([1.0, 1.0])
    silent = build(write(tmp_path / "b.gguf", without=("deepseek2.rope.scaling.yarn_log_multiplier",)))
    (scale,) = [op.attributes["scale"] for op in silent.ops if op.name == "attention"]
    assert scale == pytest.approx(48**-0.5)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"attention.temperature_scale": 0.1}, UnsupportedError, "attention.temperature_scale"),
        ({"nextn_predict_layers": 1}, ModelFileError, "nextn_predict_layers is 1"),
        ({"rope.dimension_count": 48}, ModelFileError, "rope.dimension_count is 48"),
        ({"attention.kv_lora_rank": 60}, UnsupportedError, "rank of 60"),
        ({"attention.kv_lora_rank": 72}, ModelFileError, "attn_kv_a_mqa.weight"),
        ({"attention.key_length_mla": 56}, ModelFileError, "blk.0.attn_q_b.weight"),
        ({"leading_dense_block_count": -1}, ModelFileError, "leading_dense_block_count"),
    ],
)
def test_what_is_refused(changes: dict[str, Any], error: type[Exception], message: str, tmp_path: Path) -> None:
    path = write(tmp_path / "bad.gguf", **changes)
    with pytest.raises(error, match=message) as caught:
        build(path)
    assert "\n" not in str(caught.value)


def test_layers_that_guess_further_tokens_are_left_out(tmp_path: Path) -> None:
    with open_gguf(stored.unpack("deepseek2-v3", tmp_path)) as file:
        metadata = dict(file.metadata) | {"deepseek2.nextn_predict_layers": 1}
        program = models.get("deepseek2").build(metadata, file.tensors)
    assert len(program.cache_layers) == 2


def test_a_missing_rank_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "bad.gguf", without=("deepseek2.attention.kv_lora_rank",))
    with pytest.raises(ModelFileError, match=r"lacks deepseek2\.attention\.kv_lora_rank"):
        build(path)
