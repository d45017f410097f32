"""LFM2 (Liquid AI 2025, arXiv:2511.23404): most layers are gated convolutions over a few tokens, some are attention.

Describes the network once, as a Program; knows no numbers and no backend. Next hop: `blocks.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..errors import UnsupportedError
from ..kernels.ops import Program, Value
from .blocks import Blocks
from .weights import HasShape


def build(metadata: Mapping[str, Any], tensors: Mapping[str, HasShape]) -> Program:
    """Write the network of an lfm2 file; ModelFileError or UnsupportedError name the key or tensor at fault."""
    n = Blocks(metadata, tensors, "lfm2", some_without_attention=True)
    return write_network(n, lambda y, i: n.ffn(y, i, "silu"))


def write_network(n: Blocks, ffn: Callable[[Value, int], Value]) -> Program:
    """Everything but what follows the norm before the feed-forward network of layer i, which `ffn` writes."""
    if not n.h.boolean("attention.causal", True):
        raise UnsupportedError("encoders of this family (attention.causal = false) are not supported")
    n.last_norm = "token_embd_norm"
    rope, num_taps = n.h.rope(n.head_dim, "halves"), n.h.integer("shortconv.l_cache", low=2, high=64)
    window = n.h.integer("attention.sliding_window", 0, low=0) or None
    x = n.embed()
    for i in range(n.num_layers):
        y = n.norm(x, f"blk.{i}.attn_norm")
        has_attention = n.kv_heads[i] > 0
        y = n.attention(y, i, rope, qk_norm="heads", window=window) if has_attention else _convolve(n, y, i, num_taps)
        x = n.b.add(x, y)
        x = n.b.add(x, ffn(n.norm(x, f"blk.{i}.ffn_norm"), i))
    return n.finish(x)


def _convolve(n: Blocks, x: Value, i: int, num_taps: int) -> Value:
    """out(c * conv(b * z)), where one matrix makes b, c and z of x."""
    layer, hidden = f"blk.{i}.shortconv", n.hidden
    b, c, z = (n.linear(x, f"{layer}.in_proj", hidden, part * hidden, 3 * hidden) for part in range(3))
    weight = n.w.require(f"{layer}.conv.weight", hidden, num_taps)
    y = n.b.short_conv(n.b.multiply(b, z), weight, num_taps, n.w.optional(f"{layer}.conv.bias", hidden))
    return n.linear(n.b.multiply(c, y), f"{layer}.out_proj", hidden)
