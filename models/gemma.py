"""Gemma (Gemma Team 2024, arXiv:2403.08295) and CodeGemma: Llama's blocks with GELU for a gate, and embeddings times
sqrt(hidden). Weights of norms are around 1: the converter adds what the paper's code does.

Describes the network once, as a Program; knows no numbers and no backend. Next hop: `blocks.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..kernels.ops import Program
from .blocks import Blocks
from .weights import HasShape


def build(metadata: Mapping[str, Any], tensors: Mapping[str, HasShape]) -> Program:
    """Write the network of a gemma file; ModelFileError or UnsupportedError name the key or tensor at fault."""
    n = Blocks(metadata, tensors, "gemma")
    rope = n.h.rope(n.head_dim, "halves")
    x = n.embed(scale=n.hidden**0.5)
    for i in range(n.num_layers):
        y = n.norm(x, f"blk.{i}.attn_norm")
        x = n.b.add(x, n.attention(y, i, rope))
        y = n.norm(x, f"blk.{i}.ffn_norm")
        x = n.b.add(x, n.ffn(y, i, "gelu"))
    return n.finish(x)
