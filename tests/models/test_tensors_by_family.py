"""Case O10 for every family: a tensor that is missing or has another shape than the metadata say is named in one line."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
import stored_headers as headers

from edgellm import models
from edgellm.errors import EdgeLLMError, ModelFileError

OPTIONAL = {
    "xlm-roberta-rank": {
        "cls.weight": "rerankers have one matrix or two",
        "cls.output.weight": "without it, a file embeds",
        "cls.bias": "a matrix of rerankers may have one",
        "cls.output.bias": "a matrix of rerankers may have one",
        "token_types.weight": "DistilBERT has none, and its converter says 1 type as well",
    },
    "gemma4": {"blk.1.attn_v.weight": "its keys are its values, in the only layer that sees everything"},
}
"""Tensors besides output.weight that a file may do without, though the stored one has them."""
BOTH_FORMS = "ffn_gate_inp_shexp.weight"
"""Converters have written it as a row and as a matrix of one row."""
every_model = pytest.mark.parametrize("name", headers.NAMES)


def wrong_shapes(name: str, shape: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    yield (*shape[:-1], shape[-1] + 8)
    yield (shape[0] + 8, *shape[1:])
    yield (0, *shape[1:])
    yield (1, *shape)
    yield ()
    if len(shape) == 2 and shape[0] != shape[1]:
        yield shape[::-1]
    if len(shape) > 1 and not name.endswith(BOTH_FORMS):
        yield (math.prod(shape),)


def tensors(header: headers.Header) -> list[str]:
    """All, but of DeepSeek's 26 layers, most of which are alike, those of the first two and the last two."""
    count = header.metadata[f"{header.architecture}.block_count"]
    left_out = range(2, count - 2) if count > 8 else range(0)
    return [n for n in header.shapes if not n.startswith("blk.") or int(n.split(".")[1]) not in left_out]


def refusal(header: headers.Header) -> str | None:
    """What the builder says against a file; None if it takes it. Anything but an error of ours is a fault."""
    try:
        header.build()
    except EdgeLLMError as error:
        assert "\n" not in str(error) and len(str(error)) < 400
        return str(error)
    return None


def test_every_architecture_has_a_stored_model() -> None:
    assert {headers.read(name).architecture for name in headers.NAMES} == set(models.ARCHITECTURES)


@every_model
def test_a_tensor_of_another_shape_is_named(name: str) -> None:
    header = headers.read(name)
    for tensor in tensors(header):
        shape = header.shapes[tensor]
        for wrong in wrong_shapes(tensor, shape):
            said = refusal(header.reshape({tensor: wrong}))
            assert said is not None and tensor in said, f"{tensor} {shape} as {wrong}: {said}"


@every_model
def test_a_tensor_that_is_missing_is_named(name: str) -> None:
    header = headers.read(name)
    may_miss = []
    for tensor in tensors(header):
        said = refusal(header.reshape({tensor: None}))
        if said is None:
            may_miss.append(tensor)
        else:
            assert tensor in said, f"without {tensor}: {said}"
    assert set(may_miss) - {"output.weight"} == set(OPTIONAL.get(name, ()))


@every_model
def test_a_tensor_too_many_is_named(name: str) -> None:
    for tensor in ("blk.0.mystery.weight", "mystery.weight"):
        said = refusal(headers.read(name).reshape({tensor: (8, 8)}))
        assert said is not None and repr(tensor) in said


@pytest.mark.parametrize("name", [n for n in headers.NAMES if headers.read(n).build().makes_logits])
def test_without_an_output_the_embedding_is_used(name: str) -> None:
    program = headers.read(name).reshape({"output.weight": None, "output.bias": None}).build()
    last = next(op for op in reversed(program.ops) if op.name == "linear")
    assert last.weights == ("token_embd.weight",)


def test_what_no_layer_has_is_no_fault_and_what_only_some_have_is() -> None:
    biases = {f"blk.{i}.attn_q.bias": None for i in range(2)}
    qwen2 = headers.read("qwen2")
    qwen2.reshape(biases).build()  # KORMo: qwen2 without any
    with pytest.raises(ModelFileError, match=r"lacks the tensor blk\.1\.attn_q\.bias, though it has blk\.0\.attn_q\.b"):
        qwen2.reshape({"blk.1.attn_q.bias": None}).build()


def test_a_norm_s_bias_that_the_family_has_is_missed_in_all_layers_too() -> None:
    for name, bias in (("stablelm", "attn_norm"), ("starcoder2", "ffn_up"), ("bert", "layer_output_norm")):
        gone = {tensor: None for tensor in headers.read(name).shapes if tensor.endswith(f"{bias}.bias")}
        with pytest.raises(ModelFileError, match=rf"lacks the tensor blk\.0\.{bias}\.bias"):
            headers.read(name).reshape(gone).build()
