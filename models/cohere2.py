"""Command R7B and what followed it (Cohere 2025, arXiv:2504.00698): attention and feed-forward network side by side, layer norms
without a bias. Three layers with a window turn queries and keys, each fourth sees everything and turns nothing.

Describes the network once, as a Program; knows no numbers and no backend. Next hop: `blocks.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..kernels.ops import Program
from .blocks import Blocks
from .weights import HasShape
from .windows import read_windows


def build(metadata: Mapping[str, Any], tensors: Mapping[str, HasShape]) -> Program:
    """Write the network of a cohere2 file; ModelFileError or UnsupportedError name the key or tensor at fault."""
    n = Blocks(metadata, tensors, "cohere2", norm="layer")
    n.h.integer("attention.sliding_window")  # without one, no layer would turn anything
    rope = n.h.local_rope(n.h.rope(n.head_dim, "adjacent", n.w.optional("rope_freqs.weight", n.head_dim // 2)))
    x = n.embed()
    for i, window in enumerate(read_windows(n.h, n.num_layers, period=4)):
        y = n.norm(x, f"blk.{i}.attn_norm")
        x = n.b.add(x, n.attention(y, i, rope if window else None, window=window))
        x = n.b.add(x, n.ffn(y, i, "silu"))
    return n.finish(x, scale=n.h.number("logit_scale"))
