"""Qwen1.5-MoE and Qwen2-57B-A14B (Yang et al. 2024, arXiv:2407.10671): Qwen2's attention; experts whose weights keep their sum
below one, beside a shared expert that each token weighs for itself.

Describes the network once, as a Program; knows no numbers and no backend. Next hop: `blocks.py`, `experts.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..kernels.ops import Program
from .blocks import Blocks
from .experts import read_mixture, write_experts, write_shared_expert
from .weights import HasShape


def build(metadata: Mapping[str, Any], tensors: Mapping[str, HasShape]) -> Program:
    """Write the network of a qwen2moe file; ModelFileError or UnsupportedError name the key or tensor at fault."""
    n = Blocks(metadata, tensors, "qwen2moe")
    rope = n.h.rope(n.head_dim, "halves")
    ffn = n.h.integer("feed_forward_length")
    mixture = read_mixture(n.h, max(1, ffn // n.h.integer("expert_used_count")))
    shared = n.h.integer("expert_shared_feed_forward_length", ffn)
    x = n.embed()
    for i in range(n.num_layers):
        y = n.norm(x, f"blk.{i}.attn_norm")
        x = n.b.add(x, n.attention(y, i, rope))
        y = n.norm(x, f"blk.{i}.ffn_norm")
        x = n.b.add(x, write_experts(n.b, n.w, f"blk.{i}", y, mixture))
        x = n.b.add(x, write_shared_expert(n.b, n.w, f"blk.{i}", y, shared, is_gated=True))
    return n.finish(x)
