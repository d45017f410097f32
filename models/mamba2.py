"""Mamba 2 (Dao, Gu 2024, arXiv:2405.21060) without attention: a state in each layer and nothing beside it.

Describes the network once, as a Program; knows no numbers and no backend. Next hop: `mamba_mixer.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..kernels.ops import Program
from .blocks import Blocks
from .mamba_mixer import mamba_mixer
from .weights import HasShape


def build(metadata: Mapping[str, Any], tensors: Mapping[str, HasShape]) -> Program:
    """Write the network of a mamba2 file; ModelFileError or UnsupportedError name the key or tensor at fault."""
    n = Blocks({**metadata, "mamba2.attention.head_count": 1}, tensors, "mamba2")  # files say 0, and nobody asks
    n.w.promise_biases("ssm_conv1d")
    x = n.embed()
    for i in range(n.num_layers):
        x = n.b.add(x, mamba_mixer(n, n.norm(x, f"blk.{i}.attn_norm"), i))
    return n.finish(x)
