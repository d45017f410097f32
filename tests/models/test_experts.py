"""What a file says of its experts: senseless keys are refused by name, and what families leave out is filled in."""

from __future__ import annotations

from typing import Any

import pytest

from edgellm.errors import ModelFileError, UnsupportedError
from edgellm.kernels.expert_ops import Routing

EXPERTS = {"expert_count": 8, "expert_used_count": 2}


def with_experts(file: Any, width: int = 40) -> Any:
    """The llama of conftest.py with experts in place of its feed-forward networks."""
    for i in range(2):
        for name in ("gate", "up", "down"):
            del file.shapes[f"blk.{i}.ffn_{name}.weight"]
        file.shapes[f"blk.{i}.ffn_gate_inp.weight"] = (8, 48)
        file.shapes |= {f"blk.{i}.ffn_{name}_exps.weight": (8, width, 48) for name in ("gate", "up")}
        file.shapes[f"blk.{i}.ffn_down_exps.weight"] = (8, 48, width)
    return file


def routing_of(program: Any) -> Routing:
    return next(op.attributes["routing"] for op in program.ops if op.name == "route")


def test_mixtral(llama) -> None:
    program = with_experts(llama(**EXPERTS)).build()
    assert routing_of(program) == Routing(8, 2, normalised=True)
    assert sum(op.name == "experts" for op in program.ops) == 2


def test_what_the_file_says_counts(llama) -> None:
    keys = {"expert_gating_func": 2, "expert_weights_norm": False, "expert_weights_scale": 2.5}
    groups = {"expert_group_count": 4, "expert_group_used_count": 2}
    program = with_experts(llama(**EXPERTS, **keys, **groups)).build()
    assert routing_of(program) == Routing(8, 2, "sigmoid", False, 2.5, 4, 2)


def test_an_expert_may_be_narrower_than_the_network(llama) -> None:
    file = with_experts(llama(**EXPERTS, expert_feed_forward_length=16), 16)
    assert next(op.attributes["ffn"] for op in file.build().ops if op.name == "experts") == 16


def test_gate_and_up_may_be_one_tensor(llama) -> None:
    file = with_experts(llama(**EXPERTS))
    for i in range(2):
        for name in ("gate", "up"):
            del file.shapes[f"blk.{i}.ffn_{name}_exps.weight"]
        file.shapes[f"blk.{i}.ffn_gate_up_exps.weight"] = (8, 80, 48)
    assert [len(op.weights) for op in file.build().ops if op.name == "experts"] == [2, 2]


@pytest.mark.parametrize(
    "changes, named",
    [
        ({"expert_used_count": 9}, "llama.expert_used_count is 9"),
        ({"expert_used_count": None}, "lacks llama.expert_used_count"),
        ({"expert_count": 2**40}, "llama.expert_count"),
        ({"expert_group_count": 3}, "llama.expert_group_count is 3"),
        ({"expert_group_count": 4, "expert_group_used_count": 5}, "of which 5 are used"),
        ({"expert_group_count": 8, "expert_group_used_count": 1}, "of which 2 are used"),
        ({"expert_weights_norm": 3}, "llama.expert_weights_norm is 3"),
        ({"expert_feed_forward_length": 64}, "blk.0.ffn_down_exps.weight has the shape (8, 48, 40)"),
    ],
)
def test_senseless_keys(llama, changes: dict[str, Any], named: str) -> None:
    with pytest.raises(ModelFileError) as error:
        with_experts(llama(**(EXPERTS | changes))).build()
    assert named in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    "changes, width, named",
    [
        ({"expert_gating_func": 4}, 40, "llama.expert_gating_func 4"),
        ({"expert_feed_forward_length": 12}, 12, "no multiple of 8"),
    ],
)
def test_what_is_not_known(llama, changes: dict[str, Any], width: int, named: str) -> None:
    with pytest.raises(UnsupportedError) as error:
        with_experts(llama(**(EXPERTS | changes)), width).build()
    assert named in str(error.value)


@pytest.mark.parametrize("name", ["ffn_gate_inp", "ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"])
def test_a_missing_tensor(llama, name: str) -> None:
    file = with_experts(llama(**EXPERTS))
    del file.shapes[f"blk.1.{name}.weight"]
    with pytest.raises(ModelFileError, match="lacks the tensor blk.1.ffn_") as error:
        file.build()
    assert name.removesuffix("_inp") in str(error.value)
