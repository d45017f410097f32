"""Qwen3-Next (Qwen Team 2025): the network of `delta_net.py` with experts in each layer, one of which every token uses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..kernels.ops import Program
from . import delta_net
from .weights import HasShape


def build(metadata: Mapping[str, Any], tensors: Mapping[str, HasShape]) -> Program:
    """Write the network of a qwen3next file; ModelFileError or UnsupportedError name the key or tensor at fault."""
    return delta_net.build(metadata, tensors, "qwen3next", delta_net.experts, adjacent=True)
