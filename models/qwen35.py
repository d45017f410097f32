"""Qwen 3.5, dense: the network of `delta_net.py` with a gated feed-forward network in each layer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..kernels.ops import Program
from . import delta_net
from .weights import HasShape


def build(metadata: Mapping[str, Any], tensors: Mapping[str, HasShape]) -> Program:
    """Write the network of a qwen35 file; ModelFileError or UnsupportedError name the key or tensor at fault."""
    return delta_net.build(metadata, tensors, "qwen35", lambda n, x, i: n.ffn(x, i, "silu"), adjacent=False)
