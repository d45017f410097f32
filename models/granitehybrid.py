"""Granite 4 with Mamba 2 (IBM 2025): layers with a state, a few of attention, mostly without rope; experts and a shared one, or
a dense network.

Describes the network once, as a Program; knows no numbers and no backend. Next hop: `mamba_mixer.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..kernels.ops import Program, Value
from .blocks import Blocks
from .experts import read_mixture, write_experts, write_shared_expert
from .mamba_mixer import mamba_mixer
from .weights import HasShape


def build(metadata: Mapping[str, Any], tensors: Mapping[str, HasShape]) -> Program:
    """Write the network of a granitehybrid file; ModelFileError or UnsupportedError name the key or tensor at fault."""
    n = Blocks(metadata, tensors, "granitehybrid", some_without_attention=True)
    factors = n.w.optional("rope_freqs.weight", n.head_dim // 2)
    # The converter permutes q and k as llama's, whether they turn or not.
    rope = n.h.rope(n.head_dim, "adjacent", factors) if n.h.boolean("rope.scaling.finetuned", True) else None
    scale = n.h.number("attention.scale", n.head_dim**-0.5)
    residual = n.h.number("residual_scale", 1.0)
    x = n.embed(n.h.number("embedding_scale", 1.0))
    for i in range(n.num_layers):
        y = n.norm(x, f"blk.{i}.attn_norm")
        y = n.attention(y, i, rope, scale=scale) if n.kv_heads[i] else mamba_mixer(n, y, i)
        x = n.b.add(x, n.b.scale(y, residual))
        x = n.b.add(x, n.b.scale(_feed_forward(n, n.norm(x, f"blk.{i}.ffn_norm"), i), residual))
    return n.finish(x, scale=1.0 / n.h.number("logit_scale", 1.0))


def _feed_forward(n: Blocks, x: Value, i: int) -> Value:
    """Experts whose weights add to 1, and one that every token uses, if there are any."""
    if not n.h.integer("expert_count", 0, low=0):
        return n.ffn(x, i, "silu")
    ffn = n.h.per_layer("feed_forward_length", n.num_layers)[i]
    y = write_experts(n.b, n.w, f"blk.{i}", x, read_mixture(n.h, ffn, normalised=True))
    shared = n.h.integer("expert_shared_feed_forward_length", 0, low=0)
    return n.b.add(y, write_shared_expert(n.b, n.w, f"blk.{i}", x, shared)) if shared else y
