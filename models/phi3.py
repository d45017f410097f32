"""Phi-3, Phi-3.5 and Phi-4 (Abdin et al. 2024, arXiv:2404.14219, arXiv:2412.08905): Llama's blocks with queries, keys and
values in one matrix, gate and up in another, and, for long contexts, LongRoPE (Ding et al. 2024, arXiv:2402.13753): factors of
the frequencies for contexts as long as the first training's, and others for longer ones; `kernels/context_rope.py` chooses.

Describes the network once, as a Program; knows no numbers and no backend. Next hop: `blocks.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..errors import ModelFileError
from ..kernels.context_rope import for_context
from ..kernels.ops import Program, Rope
from .blocks import Blocks
from .weights import HasShape


def build(metadata: Mapping[str, Any], tensors: Mapping[str, HasShape]) -> Program:
    """Write the network of a phi3 file; ModelFileError or UnsupportedError name the key or tensor at fault."""
    n = Blocks(metadata, tensors, "phi3")
    window = n.h.integer("attention.sliding_window", 0, low=0) or None
    rope = _rope(n)
    x = n.embed()
    for i in range(n.num_layers):
        y = n.norm(x, f"blk.{i}.attn_norm")
        x = n.b.add(x, n.attention(y, i, rope, window=window))
        y = n.norm(x, f"blk.{i}.ffn_norm")
        x = n.b.add(x, n.ffn(y, i, "silu", is_fused=True))
    return n.finish(x)


def _rope(n: Blocks) -> Rope:
    """Rotation for a context as long as the model's; `with_context` chooses anew."""
    pairs = n.h.integer("rope.dimension_count", n.head_dim) // 2
    long, short = (n.w.optional(f"rope_factors_{length}.weight", pairs) for length in ("long", "short"))
    if (long is None) != (short is None):
        there, missing = ("short", "long") if long is None else ("long", "short")
        raise ModelFileError(
            f"the file has the tensor rope_factors_{there}.weight but lacks rope_factors_{missing}.weight"
        )
    rope = n.h.rope(n.head_dim, "halves", long)
    if long is None:
        return rope
    context = n.h.integer("context_length")
    original = n.h.integer("rope.scaling.original_context_length", context)
    both = replace(rope, short_factors=short, long_factors=long, original_context=original)
    return for_context(both, context)
