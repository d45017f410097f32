"""Qwen 3.5 with experts: the network of `delta_net.py` with a mixture of experts in each layer, and one that every token uses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..kernels.ops import Program
from . import delta_net
from .weights import HasShape


def build(metadata: Mapping[str, Any], tensors: Mapping[str, HasShape]) -> Program:
    """Write the network of a qwen35moe file; ModelFileError or UnsupportedError name the key or tensor at fault."""
    return delta_net.build(metadata, tensors, "qwen35moe", delta_net.experts, adjacent=False)
