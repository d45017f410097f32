"""GLM-4 (GLM Team 2024, arXiv:2406.12793; the 0414 models): norms before and after each block, half of each head turned, and gate
and up in one matrix.

Describes the network once, as a Program; knows no numbers and no backend. Next hop: `blocks.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..kernels.ops import Program
from .blocks import Blocks
from .weights import HasShape


def build(metadata: Mapping[str, Any], tensors: Mapping[str, HasShape]) -> Program:
    """Write the network of a glm4 file; ModelFileError or UnsupportedError name the key or tensor at fault."""
    n = Blocks(metadata, tensors, "glm4")
    n.h.refuse("nextn_predict_layers", "layers that guess further tokens")
    n.h.refuse("rope.dimension_sections", "positions of pictures")
    rope = n.h.rope(n.head_dim, "adjacent")
    x = n.embed()
    for i in range(n.num_layers):
        y = n.attention(n.norm(x, f"blk.{i}.attn_norm"), i, rope)
        x = n.b.add(x, n.norm(y, f"blk.{i}.post_attention_norm"))
        y = n.ffn(n.norm(x, f"blk.{i}.ffn_norm"), i, "silu", is_fused=True)
        x = n.b.add(x, n.norm(y, f"blk.{i}.post_ffw_norm"))
    return n.finish(x)
