"""EmbeddingGemma (Vera et al. 2025, arXiv:2509.20354): Gemma 3 as an encoder, whose tokens see those behind them too.

Describes the network by `gemma3.py`'s layers; knows no numbers and no backend. Next hop: `gemma3.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..kernels.ops import Program
from .blocks import Blocks
from .gemma3 import write_layers
from .pooling import finish_encoder
from .weights import HasShape


def build(metadata: Mapping[str, Any], tensors: Mapping[str, HasShape]) -> Program:
    """Write the network of a gemma-embedding file; ModelFileError or UnsupportedError name the key or tensor at fault."""
    n = Blocks(metadata, tensors, "gemma-embedding", is_causal=False)
    return finish_encoder(n.b, n.h, n.w, n.norm(write_layers(n), "output_norm"))
