"""StableLM (Tow et al. 2023; Stable LM 2, Bellagente et al. 2024, arXiv:2402.17834): layer norms, a quarter of each head turns.
The 12B model norms each query and key head by weights of its own, and adds attention and feed-forward network to the same input.

Describes the network once, as a Program; knows no numbers and no backend. Next hop: `blocks.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..kernels.ops import Program
from .blocks import Blocks
from .weights import HasShape


def build(metadata: Mapping[str, Any], tensors: Mapping[str, HasShape]) -> Program:
    """Write the network of a stablelm file; ModelFileError or UnsupportedError name the key or tensor at fault."""
    n = Blocks(metadata, tensors, "stablelm", norm="layer")
    rope = n.h.rope(n.head_dim, "halves")
    n.w.promise_biases("attn_norm", "ffn_norm", "output_norm")
    # use_parallel_residual is in the file too, but old converters wrote it wrongly: the second norms decide.
    is_parallel, has_norms = not _has(n, "ffn_norm"), _has(n, "attn_q_norm", "attn_k_norm")
    x = n.embed()
    for i in range(n.num_layers):
        y = n.norm(x, f"blk.{i}.attn_norm")
        x = n.b.add(x, n.attention(y, i, rope, qk_norm="own heads" if has_norms else None))
        x = n.b.add(x, n.ffn(y if is_parallel else n.norm(x, f"blk.{i}.ffn_norm"), i, "silu"))
    return n.finish(x)


def _has(n: Blocks, *names: str) -> bool:
    """Whether any layer has a tensor of one of these names."""
    return any(n.w.has(f"blk.{i}.{name}.weight") for i in range(n.num_layers) for name in names)
