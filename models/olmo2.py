"""OLMo 2 (OLMo Team 2025, arXiv:2501.00656) and OLMo 3 (OLMo Team 2025, arXiv:2512.13961): norms behind the blocks instead
of before them, and queries and keys normed with all heads together. OLMo 3's layers see a window but for each fourth.

Describes the network once, as a Program; knows no numbers and no backend. Next hop: `blocks.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..kernels.ops import Program
from .blocks import Blocks
from .weights import HasShape
from .windows import read_windows


def build(metadata: Mapping[str, Any], tensors: Mapping[str, HasShape]) -> Program:
    """Write the network of a olmo2 file; ModelFileError or UnsupportedError name the key or tensor at fault."""
    n = Blocks(metadata, tensors, "olmo2")
    full = n.h.rope(n.head_dim, "halves")
    local = n.h.local_rope(full, is_scaled=False)  # a window needs no longer context
    x = n.embed()
    for i, window in enumerate(read_windows(n.h, n.num_layers, period=4)):
        y = n.attention(x, i, full if window is None else local, qk_norm="rows", window=window)
        x = n.b.add(x, n.norm(y, f"blk.{i}.post_attention_norm"))
        x = n.b.add(x, n.norm(n.ffn(x, i, "silu"), f"blk.{i}.post_ffw_norm"))
    return n.finish(x)
