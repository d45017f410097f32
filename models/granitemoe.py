"""Granite 3 and 4 with experts (Granite Team, IBM 2024): Granite's factors of embedding, residuals, scores and logits, and
experts of which some files have one more, shared by all tokens.

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
    """Write the network of a granitemoe file; ModelFileError or UnsupportedError name the key or tensor at fault."""
    n = Blocks(metadata, tensors, "granitemoe")
    rope = n.h.rope(n.head_dim, "adjacent", n.w.optional("rope_freqs.weight", n.head_dim // 2))
    scale, residual = n.h.number_or_zero("attention.scale") or None, n.h.number_or_zero("residual_scale") or 1.0
    mixture = read_mixture(n.h, n.h.integer("feed_forward_length"), normalised=True)
    shared = n.h.integer("expert_shared_feed_forward_length", 0, low=0)
    x = n.embed(n.h.number_or_zero("embedding_scale") or 1.0)
    for i in range(n.num_layers):
        y = n.norm(x, f"blk.{i}.attn_norm")
        x = n.b.add(x, n.b.scale(n.attention(y, i, rope, scale=scale), residual))
        y = n.norm(x, f"blk.{i}.ffn_norm")
        z = write_experts(n.b, n.w, f"blk.{i}", y, mixture)
        if shared:
            z = n.b.add(z, write_shared_expert(n.b, n.w, f"blk.{i}", y, shared))
        x = n.b.add(x, n.b.scale(z, residual))
    return n.finish(x, scale=1 / n.h.number("logit_scale"))
