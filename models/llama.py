"""Llama (Touvron et al. 2023, arXiv:2302.13971; Llama 3, arXiv:2407.21783) and what GGUF stores under its name:
Mistral 7B (Jiang et al. 2023, arXiv:2310.06825), SmolLM2, TinyLlama, Yi and others; with experts, Mixtral (Jiang et al. 2024,
arXiv:2401.04088).

Describes the network once, as a Program; knows no numbers and no backend. Next hop: `blocks.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..kernels.ops import Program
from .blocks import Blocks
from .experts import read_mixture, write_experts
from .weights import HasShape


def build(metadata: Mapping[str, Any], tensors: Mapping[str, HasShape]) -> Program:
    """Write the network of a llama file; ModelFileError or UnsupportedError name the key or tensor at fault."""
    n = Blocks(metadata, tensors, "llama")
    window = n.h.integer("attention.sliding_window", 0, low=0) or None
    # GGUF's converter permutes llama's q and k so that the pairs that turn together are neighbours.
    rope = n.h.rope(n.head_dim, "adjacent", n.w.optional("rope_freqs.weight", n.head_dim // 2))
    has_experts = n.h.integer("expert_count", 0, low=0) > 0
    mixture = read_mixture(n.h, n.h.integer("feed_forward_length"), normalised=True) if has_experts else None
    x = n.embed()
    for i in range(n.num_layers):
        y = n.norm(x, f"blk.{i}.attn_norm")
        x = n.b.add(x, n.attention(y, i, rope, window=window))
        y = n.norm(x, f"blk.{i}.ffn_norm")
        if mixture is not None and not n.w.has(f"blk.{i}.ffn_gate.weight"):
            x = n.b.add(x, write_experts(n.b, n.w, f"blk.{i}", y, mixture))
        else:
            x = n.b.add(x, n.ffn(y, i, "silu"))
    return n.finish(x)
