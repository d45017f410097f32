"""LFM2 with experts (Liquid AI 2025, arXiv:2511.23404): the first layers' feed-forward networks are dense, the others' a
mixture whose router has sigmoids and a bias of the choice.

Describes the network once, as a Program; knows no numbers and no backend. Next hop: `lfm2.py`, `experts.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..kernels.ops import Program, Value
from .blocks import Blocks
from .experts import read_mixture, write_experts
from .lfm2 import write_network
from .weights import HasShape


def build(metadata: Mapping[str, Any], tensors: Mapping[str, HasShape]) -> Program:
    """Write the network of an lfm2moe file; ModelFileError or UnsupportedError name the key or tensor at fault."""
    n = Blocks(metadata, tensors, "lfm2moe", some_without_attention=True)
    num_dense = n.h.integer("leading_dense_block_count", 0, low=0)
    mixture = read_mixture(n.h, scores="sigmoid", normalised=True)

    def ffn(y: Value, i: int) -> Value:
        return n.ffn(y, i, "silu") if i < num_dense else write_experts(n.b, n.w, f"blk.{i}", y, mixture)

    return write_network(n, ffn)
