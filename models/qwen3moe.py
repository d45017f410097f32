"""Qwen3-30B-A3B and its kin (Yang et al. 2025, arXiv:2505.09388): Qwen3's attention, and experts whose weights sum to one.

Describes the network once, as a Program; knows no numbers and no backend. Next hop: `blocks.py`, `experts.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..kernels.ops import Program
from .blocks import Blocks
from .experts import read_mixture, write_experts
from .weights import HasShape


def build(metadata: Mapping[str, Any], tensors: Mapping[str, HasShape]) -> Program:
    """Write the network of a qwen3moe file; ModelFileError or UnsupportedError name the key or tensor at fault."""
    n = Blocks(metadata, tensors, "qwen3moe")
    rope = n.h.rope(n.head_dim, "halves")
    mixture = read_mixture(n.h, normalised=True)
    x = n.embed()
    for i in range(n.num_layers):
        y = n.norm(x, f"blk.{i}.attn_norm")
        x = n.b.add(x, n.attention(y, i, rope, qk_norm="heads"))
        y = n.norm(x, f"blk.{i}.ffn_norm")
        x = n.b.add(x, write_experts(n.b, n.w, f"blk.{i}", y, mixture))
    return n.finish(x)
