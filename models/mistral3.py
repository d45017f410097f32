"""Mistral 3 (Mistral AI 2025): Ministral 3, and what Mistral Small 3.1 and later are stored as. Llama's blocks, and queries
that grow with the position, so that attention stays sharp over long texts (as in Llama 4; Nakanishi 2025, arXiv:2501.19399).

Describes the network once, as a Program; knows no numbers and no backend. Next hop: `blocks.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..errors import UnsupportedError
from ..kernels.ops import Program, Rope
from .blocks import Blocks
from .weights import HasShape


def build(metadata: Mapping[str, Any], tensors: Mapping[str, HasShape]) -> Program:
    """Write the network of a mistral3 file; ModelFileError or UnsupportedError name the key or tensor at fault."""
    n = Blocks(metadata, tensors, "mistral3")
    n.h.refuse("expert_count", "a mixture of experts")
    rope = n.h.rope(n.head_dim, "adjacent", n.w.optional("rope_freqs.weight", n.head_dim // 2))
    q_rope = _warmed(n, rope)
    x = n.embed()
    for i in range(n.num_layers):
        y = n.norm(x, f"blk.{i}.attn_norm")
        x = n.b.add(x, n.attention(y, i, rope, q_rope=q_rope))
        y = n.norm(x, f"blk.{i}.ffn_norm")
        x = n.b.add(x, n.ffn(y, i, "silu"))
    return n.finish(x)


def _warmed(n: Blocks, rope: Rope) -> Rope:
    """How queries turn and grow: rotated pairs get the factor, so all of a head must be rotated."""
    temperature = n.h.number_or_zero("attention.temperature_scale")
    if temperature == 0.0:
        return rope
    if rope.dim != n.head_dim:
        raise UnsupportedError(
            f"mistral3 models that grow queries (mistral3.attention.temperature_scale = {temperature:g}) but turn only"
            f" {rope.dim} of a head's {n.head_dim} numbers are not supported"
        )
    length = n.h.integer("rope.scaling.original_context_length", n.h.get("context_length"))
    return replace(rope, temperature=temperature, temperature_length=length)
