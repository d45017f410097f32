"""Gemma 2 (Gemma Team 2024, arXiv:2408.00118): norms before and after each block, capped scores and logits, and a window
for each second layer.

Describes the network once, as a Program; knows no numbers and no backend. Next hop: `blocks.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..kernels.ops import Program
from .blocks import Blocks
from .weights import HasShape
from .windows import read_windows

LAYERS_OF_27B = 46


def build(metadata: Mapping[str, Any], tensors: Mapping[str, HasShape]) -> Program:
    """Write the network of a gemma2 file; ModelFileError or UnsupportedError name the key or tensor at fault."""
    n = Blocks(metadata, tensors, "gemma2")
    cap, final_cap = n.h.number("attn_logit_softcapping", 50.0), n.h.number("final_logit_softcapping", 30.0)
    scale = (n.hidden // n.num_heads if n.num_layers == LAYERS_OF_27B else n.head_dim) ** -0.5
    rope = n.h.rope(n.head_dim, "halves")
    local = n.h.local_rope(rope)
    x = n.embed(scale=n.hidden**0.5)
    for i, window in enumerate(read_windows(n.h, n.num_layers, period=2, default=4096)):
        y = n.norm(x, f"blk.{i}.attn_norm")
        y = n.attention(y, i, rope if window is None else local, window=window, scale=scale, softcap=cap)
        x = n.b.add(x, n.norm(y, f"blk.{i}.post_attention_norm"))
        y = n.ffn(n.norm(x, f"blk.{i}.ffn_norm"), i, "gelu")
        x = n.b.add(x, n.norm(y, f"blk.{i}.post_ffw_norm"))
    return n.finish(x, softcap=final_cap)
