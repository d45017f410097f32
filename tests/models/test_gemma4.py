"""The gemma4 builder: which layers keep keys and values, whose they read, and files that do not add up."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import reference_models as stored

from edgellm import models
from edgellm.errors import ModelFileError, UnsupportedError
from edgellm.gguf import open_gguf
from edgellm.kernels.ops import Op, Program
from edgellm.kernels.windowed import with_window

Build = Callable[..., Program]


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Build the stored file with other metadata or without some tensors. changes: keys after "gemma4.", None for none."""
    with open_gguf(stored.unpack("gemma4", tmp_path_factory.mktemp("gemma4"))) as file:
        metadata, tensors = dict(file.metadata), dict(file.tensors)

    def make(
        changes: Mapping[str, Any] | None = None, without: str = "", more: Mapping[str, Any] | None = None
    ) -> Program:
        changed = metadata | {f"gemma4.{key}": value for key, value in (changes or {}).items()}
        kept = {name: tensor for name, tensor in tensors.items() if name != without}
        known = {key: value for key, value in changed.items() if value is not None}
        return models.get("gemma4").build(known, kept | dict(more or {}))

    return make


def attentions(program: Program) -> list[Op]:
    return [op for op in program.ops if op.name == "attention"]


def test_the_last_layers_read_what_the_last_of_their_kind_before_them_keep(build: Build) -> None:
    program = build()
    assert [op.attributes["layer"] for op in attentions(program)] == [0, 1, 0, 1]
    assert [op.attributes["again"] for op in attentions(program)] == [False] * 2 + [True] * 2
    assert [layer.window for layer in program.cache_layers] == [16, None]
    assert [layer.head_dim for layer in program.cache_layers] == [16, 32]


def test_keys_of_layers_that_share_may_be_in_the_file(build: Build) -> None:
    program = build()
    tensors = {"blk.2.attn_k.weight": np.zeros((32, 64)), "blk.2.attn_k_norm.weight": np.zeros(16)}
    assert build(more=tensors) == program
    with pytest.raises(UnsupportedError, match=r"blk\.2\.attn_k\.bias"):
        build(more={"blk.2.attn_k.bias": np.zeros(32)})


def test_a_window_by_choice_holds_for_layers_that_share_too(build: Build) -> None:
    program = with_window(build(), 8, 4)
    assert [(layer.window, layer.num_sink_tokens) for layer in program.cache_layers] == [(8, 4)] * 2
    assert [len(op.inputs) for op in attentions(program)] == [4] * 4, "each has queries for the sinks"


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("attention.shared_kv_layers", 3, "shared_kv_layers is 3: no layer"),
        ("attention.shared_kv_layers", 5, "shared_kv_layers is 5, but must"),
        ("rope.dimension_count_swa", 18, "dimension_count_swa is 18"),
        ("rope.freq_base", None, "rope.freq_base"),
        ("embedding_length_per_layer_input", 16, r"per_layer_token_embd\.weight"),
        ("embedding_length_per_layer_input", 12, "only multiples of 8"),
        ("attention.value_length_swa", 8, "values of another width"),
        ("expert_count", 8, "expert_used_count"),
    ],
)
def test_what_does_not_add_up_is_named(key: str, value: Any, message: str, build: Build) -> None:
    with pytest.raises((ModelFileError, UnsupportedError), match=message):
        build({key: value})


@pytest.mark.parametrize("name", ["rope_freqs.weight", "blk.0.inp_gate.weight", "blk.0.attn_k.weight"])
def test_what_lacks_is_named(name: str, build: Build) -> None:
    with pytest.raises(ModelFileError, match=name.replace(".", r"\.")):
        build(without=name)
