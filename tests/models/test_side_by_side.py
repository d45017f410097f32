"""cohere2, granite, stablelm and starcoder2: what their files may say, and may not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import reference_models as stored

from edgellm import models
from edgellm.errors import ModelFileError, UnsupportedError
from edgellm.gguf import open_gguf
from edgellm.kernels.ops import Program

Build = Callable[..., Program]


@pytest.fixture
def build(tmp_path: Path) -> Build:
    """Build a stored model with other metadata: keys after the architecture's name, None for none."""

    def make(name: str, without: str = "", **changes: Any) -> Program:
        with open_gguf(stored.unpack(name, tmp_path)) as file:
            architecture = str(file.get("general.architecture"))
            changed = {f"{architecture}.{key.replace('__', '.')}": value for key, value in changes.items()}
            known = {key: value for key, value in (dict(file.metadata) | changed).items() if value is not None}
            return models.get(architecture).build(known, {n: t for n, t in file.tensors.items() if n != without})

    return make


def count(program: Program, name: str) -> int:
    return sum(op.name == name for op in program.ops)


def test_layers_of_cohere2_without_a_window_turn_nothing(build: Build) -> None:
    program = build("cohere2")
    assert [layer.window for layer in program.cache_layers] == [16, 16, 16, None] and count(program, "rope") == 6
    pattern = np.array([False, True, False, True])
    other = build("cohere2", attention__sliding_window_pattern=pattern)
    assert [layer.window for layer in other.cache_layers] == [None, 16, None, 16] and count(other, "rope") == 4


@pytest.mark.parametrize("key", ["attention.sliding_window", "logit_scale", "attention.layer_norm_epsilon"])
def test_cohere2_needs_what_a_default_would_get_wrong(key: str, build: Build) -> None:
    with pytest.raises(ModelFileError, match=f"cohere2.{key}"):
        build("cohere2", **{key.replace(".", "__"): None})


def test_granite_without_positions_and_without_multipliers(build: Build) -> None:
    assert count(build("granite", rope__scaling__finetuned=False), "rope") == 0
    plain = build("granite", attention__scale=None)
    assert {op.attributes["scale"] for op in plain.ops if op.name == "attention"} == {0.25}
    with pytest.raises(ModelFileError, match=r"granite\.logit_scale"):
        build("granite", logit_scale=None)
    with pytest.raises(UnsupportedError, match="deepstack_mapping"):
        build("granite", deepstack_mapping=np.array([-1, 1]))


def test_stablelm_without_a_second_norm_is_parallel_whatever_it_says(build: Build) -> None:
    assert count(build("stablelm"), "layer_norm") == 5
    assert count(build("stablelm-parallel", use_parallel_residual=False), "layer_norm") == 7
    with pytest.raises(ModelFileError, match=r"blk\.1\.attn_k_norm\.weight"):
        build("stablelm-parallel", without="blk.1.attn_k_norm.weight")


def test_starcoder2_has_a_window_if_the_file_says_so(build: Build) -> None:
    assert {layer.window for layer in build("starcoder2").cache_layers} == {None}
    assert {layer.window for layer in build("starcoder2", attention__sliding_window=64).cache_layers} == {64}
