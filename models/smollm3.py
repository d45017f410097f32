"""SmolLM3 (Bakouch et al. 2025, huggingface.co/blog/smollm3): Llama's blocks; every fourth layer does not turn queries and
keys, so it knows no positions (Yang et al. 2025, arXiv:2501.18795).

Describes the network once, as a Program; knows no numbers and no backend. Next hop: `blocks.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..kernels.ops import Program
from .blocks import Blocks
from .weights import HasShape

STEP_WITHOUT_ROPE = 4  # no file says so: the converter leaves it out


def build(metadata: Mapping[str, Any], tensors: Mapping[str, HasShape]) -> Program:
    """Write the network of a smollm3 file; ModelFileError or UnsupportedError name the key or tensor at fault."""
    n = Blocks(metadata, tensors, "smollm3")
    rope = n.h.rope(n.head_dim, "adjacent")
    x = n.embed()
    for i in range(n.num_layers):
        y = n.norm(x, f"blk.{i}.attn_norm")
        x = n.b.add(x, n.attention(y, i, rope if (i + 1) % STEP_WITHOUT_ROPE else None))
        y = n.norm(x, f"blk.{i}.ffn_norm")
        x = n.b.add(x, n.ffn(y, i, "silu"))
    return n.finish(x)
