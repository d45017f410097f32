"""GPT-OSS (OpenAI 2025, arXiv:2508.10925): a mixture of experts in every layer, every other one with a window, a learned
score of nothing for each head, biases everywhere.

Describes the network once, as a Program; knows no numbers and no backend. Next hop: `blocks.py`, `experts.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..kernels.ops import Program
from .blocks import Blocks
from .experts import read_mixture, write_experts
from .weights import HasShape
from .windows import read_windows


def build(metadata: Mapping[str, Any], tensors: Mapping[str, HasShape]) -> Program:
    """Write the network of a gpt-oss file; ModelFileError or UnsupportedError name the key or tensor at fault."""
    n = Blocks(metadata, tensors, "gpt-oss")
    n.w.promise_biases("attn_q", "attn_k", "attn_v", "attn_output")
    # No key says so, but all weights there are were trained with a ramp that does not end at whole pairs.
    rope = replace(n.h.rope(n.head_dim, "halves"), yarn_truncate=False)
    local = n.h.local_rope(rope)
    windows = read_windows(n.h, n.num_layers, 2)
    mixture = read_mixture(n.h, scores="softmax_of_used")
    x = n.embed()
    for i in range(n.num_layers):
        y = n.norm(x, f"blk.{i}.attn_norm")
        sinks = n.w.require(f"blk.{i}.attn_sinks.weight", n.num_heads)
        x = n.b.add(x, n.attention(y, i, local if windows[i] else rope, window=windows[i], sinks=sinks))
        y = n.norm(x, f"blk.{i}.post_attention_norm")
        x = n.b.add(x, write_experts(n.b, n.w, f"blk.{i}", y, mixture, "swiglu_clamped", biased=True))
    return n.finish(x)
