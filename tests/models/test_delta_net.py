"""Files of families with a state that lack keys, hold senseless ones or come from old converters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import reference_models as stored

from edgellm import models
from edgellm.errors import ModelFileError, UnsupportedError
from edgellm.gguf import open_gguf
from edgellm.kernels.ops import Program


class Shape:
    """A tensor of which only the shape is asked."""

    def __init__(self, *shape: int) -> None:
        self.shape = shape


@pytest.fixture(scope="module")
def describe(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[dict[str, Any], dict[str, Shape]]]:
    """-> the metadata and the shapes of a stored model."""
    folder = tmp_path_factory.mktemp("models")

    def read(name: str) -> tuple[dict[str, Any], dict[str, Shape]]:
        with open_gguf(stored.unpack(name, folder)) as file:
            return dict(file.metadata), {n: Shape(*t.shape) for n, t in file.tensors.items()}

    return read


def build(metadata: dict[str, Any], tensors: dict[str, Shape]) -> Program:
    return models.get(metadata["general.architecture"]).build(metadata, tensors)


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("qwen35", "qwen35.ssm.state_size", None),
        ("qwen35", "qwen35.ssm.time_step_rank", 3),
        ("qwen35", "qwen35.ssm.conv_kernel", 1),
        ("qwen35", "qwen35.attention.recurrent_layers", np.array([True, False])),
        ("qwen35", "qwen35.nextn_predict_layers", 4),
        ("qwen35moe", "qwen35moe.expert_count", None),
        ("mamba2", "mamba2.ssm.group_count", 3),
        ("mamba2", "mamba2.ssm.inner_size", 0),
        ("granitehybrid", "granitehybrid.attention.head_count_kv", np.array([0, 0, 3, 0])),
    ],
)
def test_a_senseless_key_is_named(name: str, key: str, value: Any, describe: Any) -> None:
    metadata, tensors = describe(name)
    metadata.pop(key) if value is None else metadata.update({key: value})
    with pytest.raises(ModelFileError, match=key.partition(".")[2]):
        build(metadata, tensors)


@pytest.mark.parametrize("tensor", ["blk.0.ssm_a", "blk.1.ssm_conv1d.weight", "blk.2.ssm_norm.weight"])
@pytest.mark.parametrize("name", ["qwen3next", "mamba2"])
def test_a_missing_tensor_is_named(name: str, tensor: str, describe: Any) -> None:
    metadata, tensors = describe(name)
    del tensors[tensor]
    with pytest.raises(ModelFileError, match=tensor):
        build(metadata, tensors)


def test_without_a_list_every_fourth_layer_is_attention(describe: Any) -> None:
    metadata, tensors = describe("qwen35")
    expected = build(metadata, tensors)
    for key in ("attention.recurrent_layers", "full_attention_interval"):
        del metadata[f"qwen35.{key}"]
    assert build(metadata, tensors) == expected


def test_layers_that_guess_further_tokens_are_left_out(describe: Any) -> None:
    metadata, tensors = describe("qwen35")
    expected = build(metadata, tensors)
    metadata |= {"qwen35.block_count": 5, "qwen35.nextn_predict_layers": 1}
    metadata["qwen35.attention.recurrent_layers"] = np.array([True, True, True, False, False])
    tensors |= {"blk.4.nextn.eh_proj.weight": Shape(64, 128), "blk.4.attn_q.weight": Shape(256, 64)}
    assert build(metadata, tensors) == expected


def test_files_of_the_first_converter_are_refused(describe: Any) -> None:
    metadata, tensors = describe("qwen3next")
    tensors["blk.0.ssm_in.weight"] = Shape(384, 64)
    with pytest.raises(UnsupportedError, match=r"blk\.0\.ssm_in\.weight .* take a newer file"):
        build(metadata, tensors)
