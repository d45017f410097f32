"""Arcee's foundation models, AFM 4.5B (Arcee AI 2025): Llama's blocks around a feed-forward network without a gate, whose
activation is the square of relu (So et al. 2021, arXiv:2109.08668).

Describes the network once, as a Program; knows no numbers and no backend. Next hop: `blocks.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..kernels.ops import Program
from .blocks import Blocks
from .weights import HasShape


def build(metadata: Mapping[str, Any], tensors: Mapping[str, HasShape]) -> Program:
    """Write the network of an arcee file; ModelFileError or UnsupportedError name the key or tensor at fault."""
    n = Blocks(metadata, tensors, "arcee")
    rope = n.h.rope(n.head_dim, "adjacent", n.w.optional("rope_freqs.weight", n.head_dim // 2))
    sizes = n.h.per_layer("feed_forward_length", n.num_layers)
    x = n.embed()
    for i in range(n.num_layers):
        y = n.norm(x, f"blk.{i}.attn_norm")
        x = n.b.add(x, n.attention(y, i, rope))
        y = n.linear(n.norm(x, f"blk.{i}.ffn_norm"), f"blk.{i}.ffn_up", sizes[i])
        y = n.b.activate(y, "relu")
        x = n.b.add(x, n.linear(n.b.multiply(y, y), f"blk.{i}.ffn_down", n.hidden))
    return n.finish(x)
