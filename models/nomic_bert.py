"""Nomic BERT (Nussbaum et al. 2024, arXiv:2402.01613): BERT with rotated heads, gated feed-forward parts and no biases.

Describes the network by `bert.py`'s blocks; knows no numbers and no backend. Next hop: `bert.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..kernels.ops import Program
from .bert import Encoder
from .weights import HasShape


def build(metadata: Mapping[str, Any], tensors: Mapping[str, HasShape]) -> Program:
    """Write the network of a nomic-bert file; ModelFileError or UnsupportedError name the key or tensor at fault."""
    return Encoder("nomic-bert", metadata, tensors, is_gated=True, has_rope=True).build()
