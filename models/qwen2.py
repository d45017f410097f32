"""Qwen2 and Qwen2.5 (Yang et al. 2024, arXiv:2407.10671, arXiv:2412.15115): Llama's blocks, with biases of queries, keys and
values, and pairs that turn half a head apart.

Describes the network once, as a Program; knows no numbers and no backend. Next hop: `blocks.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..kernels.ops import Program
from .blocks import Blocks
from .weights import HasShape


def build(metadata: Mapping[str, Any], tensors: Mapping[str, HasShape]) -> Program:
    """Write the network of a qwen2 file; ModelFileError or UnsupportedError name the key or tensor at fault."""
    n = Blocks(metadata, tensors, "qwen2")
    rope = n.h.rope(n.head_dim, "halves")
    x = n.embed()
    for i in range(n.num_layers):
        y = n.norm(x, f"blk.{i}.attn_norm")
        x = n.b.add(x, n.attention(y, i, rope))
        y = n.norm(x, f"blk.{i}.ffn_norm")
        x = n.b.add(x, n.ffn(y, i, "silu"))
    return n.finish(x)
