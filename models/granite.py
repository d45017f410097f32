"""Granite 3 (Granite Team 2024, github.com/ibm-granite/granite-3.0-language-models): Llama with four multipliers, of the
embedding, the scores, what a block adds, and the logits.

Describes the network once, as a Program; knows no numbers and no backend. Next hop: `blocks.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..kernels.ops import Program
from .blocks import Blocks
from .weights import HasShape


def build(metadata: Mapping[str, Any], tensors: Mapping[str, HasShape]) -> Program:
    """Write the network of a granite file; ModelFileError or UnsupportedError name the key or tensor at fault."""
    n = Blocks(metadata, tensors, "granite")
    n.h.refuse("expert_count", "a mixture of experts")
    n.h.refuse("deepstack_mapping", "pictures mixed into layers")
    rope = n.h.rope(n.head_dim, "adjacent", n.w.optional("rope_freqs.weight", n.head_dim // 2))
    turns = n.h.boolean("rope.scaling.finetuned", True)  # the converter's switch for Granites without positions
    added = n.h.number("residual_scale", 1.0)
    score_scale = n.h.number("attention.scale", n.head_dim**-0.5)
    x = n.embed(scale=n.h.number("embedding_scale", 1.0))
    for i in range(n.num_layers):
        y = n.norm(x, f"blk.{i}.attn_norm")
        y = n.attention(y, i, rope if turns else None, scale=score_scale)
        x = n.b.add(x, n.b.scale(y, added))
        y = n.norm(x, f"blk.{i}.ffn_norm")
        x = n.b.add(x, n.b.scale(n.ffn(y, i, "silu"), added))
    return n.finish(x, scale=1.0 / n.h.number("logit_scale"))
