"""What Qwen3-Next and Qwen 3.5 share: layers of the gated delta rule (Yang et al. 2024, arXiv:2412.06464) and, for every few of
them, one of attention whose output passes a gate.

The families differ in their feed-forward networks and in the order of heads. Describes a network; knows no numbers and no
backend. Next hop: `blocks.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..errors import ModelFileError, UnsupportedError
from ..kernels.ops import CacheLayer, Program, Rope, Value
from .blocks import Blocks
from .experts import read_mixture, write_experts, write_shared_expert
from .weights import HasShape

FeedForward = Callable[[Blocks, Value, int], Value]


def build(
    metadata: Mapping[str, Any],
    tensors: Mapping[str, HasShape],
    architecture: str,
    feed_forward: FeedForward,
    *,
    adjacent: bool,
) -> Program:
    """Write the network; ModelFileError or UnsupportedError name the key or tensor at fault.

    adjacent: value heads that share a key head lie side by side in the file, or else as far apart as there are key heads.
    """
    n = Blocks(metadata, tensors, architecture)
    rope = n.h.rope(n.head_dim, "halves")
    is_recurrent = _recurrent_layers(n)
    num_guessers = n.h.integer("nextn_predict_layers", 0, low=0, high=n.num_layers - 1)
    x = n.embed()
    for i in range(n.num_layers - num_guessers):
        y = n.norm(x, f"blk.{i}.attn_norm")
        x = n.b.add(x, delta_rule(n, y, i, adjacent) if is_recurrent[i] else gated_attention(n, y, i, rope))
        x = n.b.add(x, feed_forward(n, n.norm(x, f"blk.{i}.post_attention_norm"), i))
    for i in range(n.num_layers - num_guessers, n.num_layers):
        n.w.skip(f"blk.{i}.")  # they guess the token after the next (multi-token prediction), from the hidden states
    return n.finish(x)


def delta_rule(n: Blocks, x: Value, i: int, adjacent: bool) -> Value:
    """The gated delta rule of layer i: a short convolution, the rule, a norm of each head, a gate."""
    layer, h, b = f"blk.{i}", n.h, n.b
    key_dim, key_heads, value_heads = (h.integer(f"ssm.{k}") for k in ("state_size", "group_count", "time_step_rank"))
    values, taps = h.integer("ssm.inner_size"), h.integer("ssm.conv_kernel", low=2)
    if value_heads % key_heads or values % value_heads:
        raise ModelFileError(
            f"{h.architecture}.ssm.time_step_rank is {value_heads}, but must be a multiple of ssm.group_count,"
            f" {key_heads}, and divide ssm.inner_size, {values}"
        )
    if n.w.has(f"{layer}.ssm_in.weight"):
        raise UnsupportedError(
            f"{layer}.ssm_in.weight holds queries, keys, values and gates head by head, as the first converters wrote them;"
            " that is not supported: take a newer file of the model"
        )
    qkv, z = (
        n.linear(x, f"{layer}.attn_qkv", 2 * key_heads * key_dim + values),
        n.linear(x, f"{layer}.attn_gate", values),
    )
    beta, alpha = _beta_alpha(n, x, layer, value_heads)
    qkv = b.short_conv(qkv, n.w.require(f"{layer}.ssm_conv1d.weight", qkv.width, taps), taps)
    y = b.gated_delta(
        b.activate(qkv, "silu"),
        beta,
        alpha,
        n.w.require(f"{layer}.ssm_a", value_heads),
        n.w.require(f"{layer}.ssm_dt.bias", value_heads),
        num_key_heads=key_heads,
        num_value_heads=value_heads,
        key_dim=key_dim,
        value_dim=values // value_heads,
        adjacent=adjacent,
    )
    return n.linear(b.gated(z, n.norm(y, f"{layer}.ssm_norm", value_heads), "silu"), f"{layer}.ssm_out", n.hidden)


def gated_attention(n: Blocks, x: Value, i: int, rope: Rope) -> Value:
    """Self-attention of layer i whose output is multiplied by a gate; the rows of q hold each head's query, then its gate."""
    layer, heads, kv_heads, dim = f"blk.{i}", n.num_heads, n.kv_heads[i], n.head_dim
    both = n.linear(x, f"{layer}.attn_q", 2 * heads * dim)
    k, v = n.linear(x, f"{layer}.attn_k", kv_heads * dim), n.linear(x, f"{layer}.attn_v", kv_heads * dim)
    q, gate = n.b.columns(both, 0, dim, heads), n.b.columns(both, dim, dim, heads)
    q, k = n.norm(q, f"{layer}.attn_q_norm", heads), n.norm(k, f"{layer}.attn_k_norm", kv_heads)
    q, k = n.b.rope(q, heads, rope), n.b.rope(k, kv_heads, rope)
    y = n.b.attention(q, k, v, heads, CacheLayer(kv_heads, dim), dim**-0.5)
    return n.linear(n.b.gated(gate, y, "sigmoid"), f"{layer}.attn_output", n.hidden)


def experts(n: Blocks, x: Value, i: int) -> Value:
    """The mixture of experts of layer i, whose weights add to 1, and the expert that every token uses."""
    mixture = read_mixture(n.h, normalised=True)
    shared = n.h.integer("expert_shared_feed_forward_length", mixture.ffn)
    y = write_experts(n.b, n.w, f"blk.{i}", x, mixture)
    return n.b.add(y, write_shared_expert(n.b, n.w, f"blk.{i}", x, shared, is_gated=True))


def _beta_alpha(n: Blocks, x: Value, layer: str, heads: int) -> tuple[Value, Value | None]:
    """How much a token corrects the state, and how much it decays it: two matrices, or one (Qwen3-Next)."""
    if n.w.has(f"{layer}.ssm_ba.weight"):
        return n.linear(x, f"{layer}.ssm_ba", 2 * heads), None
    return n.linear(x, f"{layer}.ssm_beta", heads), n.linear(x, f"{layer}.ssm_alpha", heads)


def _recurrent_layers(n: Blocks) -> list[bool]:
    """Per layer whether it has a state: what the file says, else all but every fourth."""
    recurrent = n.h.get("attention.recurrent_layers")
    if recurrent is None:
        interval = n.h.integer("full_attention_interval", 4)
        return [(i + 1) % interval != 0 for i in range(n.num_layers)]
    if not isinstance(recurrent, np.ndarray) or recurrent.dtype.kind not in "biu" or len(recurrent) != n.num_layers:
        raise ModelFileError(
            f"{n.h.architecture}.attention.recurrent_layers must say yes or no for each of {n.num_layers} layers"
        )
    return [bool(r) for r in recurrent]
