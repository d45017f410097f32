"""Nomic BERT (Nussbaum et al. 2024, arXiv:2402.01613): BERT with turned heads, gated feed-forward parts and no biases.

Describes the network once, as a Program; knows no numbers and no backend. Next hops: `bert.py`, `blocks.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..kernels.ops import Program
from .bert import begin, embed
from .pooling import finish_encoder
from .weights import HasShape


def build(metadata: Mapping[str, Any], tensors: Mapping[str, HasShape]) -> Program:
    """Write the network of a nomic-bert file; ModelFileError or UnsupportedError name the key or tensor at fault."""
    n = begin(metadata, tensors, "nomic-bert")
    rope = n.h.rope(n.head_dim, "halves")
    n.w.promise_biases("token_embd_norm", "attn_output_norm", "layer_output_norm")
    x = n.norm(embed(n, metadata), "token_embd_norm")
    for i in range(n.num_layers):
        x = n.norm(n.b.add(x, n.attention(x, i, rope)), f"blk.{i}.attn_output_norm")
        x = n.norm(n.b.add(x, n.ffn(x, i, "silu")), f"blk.{i}.layer_output_norm")
    return finish_encoder(n.b, n.h, n.w, x)
