"""Gemma 3, the text part (Gemma Team 2025, arXiv:2503.19786): norms before and after each block, normed queries and
keys, and five layers that see a window of tokens for each one that sees them all.

Describes the network once, as a Program; knows no numbers and no backend. Next hop: `blocks.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..kernels.ops import Program, Rope, Value
from .blocks import Blocks
from .hparams import HParams
from .weights import HasShape
from .windows import read_windows

LAYERS_OF_27B = 62


def build(metadata: Mapping[str, Any], tensors: Mapping[str, HasShape]) -> Program:
    """Write the network of a gemma3 file; ModelFileError or UnsupportedError name the key or tensor at fault."""
    n = Blocks(metadata, tensors, "gemma3")
    return n.finish(write_layers(n), softcap=n.h.number_or_zero("final_logit_softcapping"))


def write_layers(n: Blocks) -> Value:
    """Write all but the last norm and the output. Where n is not causal, tokens see half a window to either side."""
    n.h.refuse("expert_count", "a mixture of experts")
    n.h.refuse("attn_logit_softcapping", "capped attention scores")
    scale = (n.hidden // n.num_heads if n.num_layers == LAYERS_OF_27B else n.head_dim) ** -0.5
    ropes = _ropes(n.h, n.head_dim)
    x = n.embed(scale=n.hidden**0.5)
    for i, window in enumerate(read_windows(n.h, n.num_layers, period=6)):
        if window is not None and not n.is_causal:
            window = window // 2 + 1
        y = n.norm(x, f"blk.{i}.attn_norm")
        y = n.attention(y, i, ropes[window is not None], qk_norm="heads", window=window, scale=scale)
        x = n.b.add(x, n.norm(y, f"blk.{i}.post_attention_norm"))
        y = n.ffn(n.norm(x, f"blk.{i}.ffn_norm"), i, "gelu")
        x = n.b.add(x, n.norm(y, f"blk.{i}.post_ffw_norm"))
    return x


def _ropes(h: HParams, head_dim: int) -> tuple[Rope, Rope]:
    """Rotation of the layers that see everything, and of those with a window: slower there, and never scaled."""
    h.number("rope.freq_base")  # a default would be wrong for every Gemma 3 there is
    full = h.rope(head_dim, "halves")
    return full, h.local_rope(full, 10000.0, is_scaled=False)
