"""OLMoE (Muennighoff et al. 2024, arXiv:2409.02060): queries and keys normed over all heads at once, and experts whose weights
keep their sum below one.

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
    """Write the network of an olmoe file; ModelFileError or UnsupportedError name the key or tensor at fault."""
    n = Blocks(metadata, tensors, "olmoe")
    rope = n.h.rope(n.head_dim, "halves")
    mixture = read_mixture(n.h, n.h.integer("feed_forward_length"))
    x = n.embed()
    for i in range(n.num_layers):
        y = n.norm(x, f"blk.{i}.attn_norm")
        x = n.b.add(x, n.attention(y, i, rope, qk_norm="rows"))
        y = n.norm(x, f"blk.{i}.ffn_norm")
        x = n.b.add(x, write_experts(n.b, n.w, f"blk.{i}", y, mixture))
    return n.finish(x)
