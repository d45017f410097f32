"""Case O10 for every family: head sizes as the file says, keys that cannot be, and none that is believed without a look."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import reference_models as stored
import stored_headers as headers

from edgellm.errors import EdgeLLMError
from edgellm.kernels import reference

every_model = pytest.mark.parametrize("name", headers.NAMES)
NO_HEADS = {"mamba2"}
"""Has no attention; its converter writes head_count 0."""
LATENT = {"deepseek2", "deepseek2-v3"}
"""Has keys of all heads in one short vector: sizes by keys of their own, and head_count_kv means nothing."""
WITH_HEADS = [name for name in headers.NAMES if name not in NO_HEADS]
PLAIN_HEADS = [name for name in WITH_HEADS if name not in LATENT]
IDS = [5, 80, 3, 3, 17, 42, 9, 100, 2, 64]
SENSELESS: tuple[Any, ...] = (
    *(-1, 0, 1, 3, 7, 2**31, 2**62, True, 0.0, -1.0, 2.5, float("nan"), float("inf"), "x", ""),
    *(np.array([]), np.array([1, 2]), np.zeros(40, np.int32), np.array([0.5] * 4), [], None),
)


def refusal(header: headers.Header) -> str:
    with pytest.raises(EdgeLLMError) as error:
        header.build()
    assert "\n" not in str(error.value) and len(str(error.value)) < 400
    return str(error.value)


DELTA_NET = {"qwen35", "qwen35moe", "qwen3next"}
"""attn_qkv there is no attention's, but that of layers with a state."""
TWO_SIZES = {"gemma4", "gemma4-31b", "gemma4-experts"}
"""Layers with a window have heads of another size: a key more, and tests of their own in test_gemma4.py."""


@pytest.mark.parametrize("name", [n for n in PLAIN_HEADS if n not in DELTA_NET | TWO_SIZES])
def test_a_head_size_that_is_not_hidden_by_heads(name: str) -> None:
    header = headers.with_head_size(name, 24)
    assert 24 * header.metadata[f"{header.architecture}.attention.head_count"] != 64
    program = header.build()
    assert {layer.head_dim for layer in program.cache_layers} == {24}
    rng = np.random.default_rng(0)
    weights = {n: rng.normal(0, 0.2, s).astype(np.float32) + ("norm" in n) for n, s in header.shapes.items()}
    weights |= {n: np.ones_like(w) for n, w in weights.items() if n.startswith("rope_f")}
    out = reference.run(program, weights, IDS)
    assert len(out) == len(IDS) and np.isfinite(out).all()


@pytest.mark.parametrize("name", PLAIN_HEADS)
def test_a_head_size_of_zero_is_refused(name: str) -> None:
    header = headers.read(name)
    assert f"{header.architecture}.attention.key_length is 0" in refusal(header.set(**{"attention.key_length": 0}))
    said = refusal(header.set(**{"attention.value_length": 0}))
    assert f"{header.architecture}.attention.value_length is 0" in said


@pytest.mark.parametrize("name", sorted(LATENT))
@pytest.mark.parametrize("key", ["key_length_mla", "value_length_mla", "kv_lora_rank"])
def test_a_latent_size_of_zero_is_refused(name: str, key: str) -> None:
    assert f"deepseek2.attention.{key} is 0" in refusal(headers.read(name).set(**{f"attention.{key}": 0}))


@pytest.mark.parametrize("name", WITH_HEADS)
@pytest.mark.parametrize(("value", "said"), [(0, "is 0"), (-4, "is -4"), (None, "lacks"), (4.0, "is 4.0")])
def test_a_number_of_heads_that_cannot_be_is_refused(name: str, value: Any, said: str) -> None:
    header = headers.read(name)
    message = refusal(header.set(**{"attention.head_count": value}))
    assert said in message and f"{header.architecture}.attention.head_count" in message


@pytest.mark.parametrize("name", PLAIN_HEADS)
def test_key_heads_that_cannot_be_are_refused(name: str) -> None:
    header = headers.read(name)
    key, heads = f"{header.architecture}.attention.head_count_kv", header.metadata
    count = heads[f"{header.architecture}.attention.head_count"]
    for wrong in (-1, 3, count + 1, 2 * count):
        assert f"{key} is {wrong}" in refusal(header.set(**{"attention.head_count_kv": wrong}))
    if header.architecture not in ("granitehybrid", "lfm2", "lfm2moe"):  # 0 there: a layer without attention
        assert f"{key} is 0" in refusal(header.set(**{"attention.head_count_kv": 0}))


@pytest.mark.parametrize("name", ["granitehybrid", "granitehybrid-dense", "lfm2", "lfm2moe"])
def test_no_key_heads_mean_a_layer_without_attention_and_its_tensors_are_missed(name: str) -> None:
    header = headers.read(name)
    key = f"{header.architecture}.attention.head_count_kv"
    counts = header.metadata[key]
    at = int(np.flatnonzero(counts)[0])
    without = np.where(np.arange(len(counts)) == at, 0, counts)
    assert f"blk.{at}." in refusal(header.set(**{"attention.head_count_kv": without}))
    assert "one for each layer" in refusal(header.set(**{"attention.head_count_kv": counts[:-1]}))


@every_model
def test_the_size_of_the_vocabulary_is_that_of_the_list_whatever_else_is_said(name: str) -> None:
    header = headers.read(name)
    said, unsaid = header.set(vocab_size=7), header.set(vocab_size=None)
    del unsaid.metadata["tokenizer.ggml.tokens"]
    assert said.build() == header.build() == unsaid.build()


@every_model
def test_no_value_of_any_key_is_more_than_one_line(name: str) -> None:
    """Each key of the file, and those that matter and are not there: taken or refused, never a fault of the program's."""
    header = headers.read(name)
    start = f"{header.architecture}."
    keys = {key.removeprefix(start) for key in header.metadata if key.startswith(start)}
    keys |= {"attention.head_count_kv", "attention.key_length", "attention.value_length", "rope.dimension_count"}
    keys |= {"rope.scaling.type", "rope.scaling.factor", "attention.causal", "pooling_type", "expert_count"}
    keys |= {"rope.scaling.finetuned", "rope.freq_base_swa", "attention.sliding_window", "classifier.output_labels"}
    keys |= {"rope.scaling.attn_factor", "nextn_predict_layers", "attention.temperature_scale"}
    for key in sorted(keys - {"block_count"}):
        for value in SENSELESS:
            try:
                header.set(**{key: value}).build()
            except EdgeLLMError as error:
                assert "\n" not in str(error) and len(str(error)) < 400
            except Exception as error:  # what it was is what the reader wants to know
                raise AssertionError(f"{key} = {value!r}: {error!r}") from error


def test_a_stored_reference_is_that_of_the_header(tmp_path: Any) -> None:
    """The headers here are the files': building one gives the program that the file gives."""
    with stored.open_gguf(stored.unpack("qwen3", tmp_path)) as file:
        assert stored.build(file) == headers.read("qwen3").build()
