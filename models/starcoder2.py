"""StarCoder 2 (Lozhkov et al. 2024, arXiv:2402.19173): layer norms, biases everywhere, a feed-forward network without a gate.

The models were trained with a window of 4096 tokens, which no GGUF file says: llama.cpp leaves it out, and so do we.

Describes the network once, as a Program; knows no numbers and no backend. Next hop: `blocks.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..kernels.ops import Program
from .blocks import Blocks
from .weights import HasShape

BIASED = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_up", "ffn_down", "attn_norm", "ffn_norm", "output_norm")


def build(metadata: Mapping[str, Any], tensors: Mapping[str, HasShape]) -> Program:
    """Write the network of a starcoder2 file; ModelFileError or UnsupportedError name the key or tensor at fault."""
    n = Blocks(metadata, tensors, "starcoder2", norm="layer")
    n.w.promise_biases(*BIASED)
    window = n.h.integer("attention.sliding_window", 0, low=0) or None
    ffn, rope = n.h.per_layer("feed_forward_length", n.num_layers), n.h.rope(n.head_dim, "halves")
    x = n.embed()
    for i in range(n.num_layers):
        y = n.norm(x, f"blk.{i}.attn_norm")
        x = n.b.add(x, n.attention(y, i, rope, window=window))
        y = n.norm(x, f"blk.{i}.ffn_norm")
        y = n.b.activate(n.linear(y, f"blk.{i}.ffn_up", ffn[i]), "gelu")
        x = n.b.add(x, n.linear(y, f"blk.{i}.ffn_down", n.hidden))
    return n.finish(x)
