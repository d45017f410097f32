"""Gemma 3, the text part (Gemma Team 2025, arXiv:2503.19786): norms before and after each block, normed queries and
keys, and five layers that see a window of tokens for each one that sees them all.

Describes the network once, as a Program; knows no numbers and no backend. Next hop: `kernels/ops.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ..errors import ModelFileError
from ..kernels.ops import Builder, CacheLayer, Program, Rope, Value
from .hparams import HParams
from .weights import HasShape, Weights

LAYERS_OF_27B = 62


def build(metadata: Mapping[str, Any], tensors: Mapping[str, HasShape]) -> Program:
    """Write the network of a gemma3 file; ModelFileError or UnsupportedError name the key or tensor at fault."""
    h, w, b = HParams(metadata, "gemma3"), Weights(tensors), Builder()
    vocab_size = w.vocab_size(metadata, "token_embd.weight")
    x, embedding = trunk(h, w, b, vocab_size)
    output = w.optional("output.weight", vocab_size, x.width) or embedding
    logits = b.linear(x, output, vocab_size)
    w.check_all_used("gemma3")
    return b.finish(logits)


def trunk(h: HParams, w: Weights, b: Builder, vocab_size: int, is_causal: bool = True) -> tuple[Value, str]:
    """Write all but the output. -> hidden states after the last norm, the name of the embedding table.

    is_causal: False for embeddinggemma, whose tokens see half a window to either side and whose other layers see all.
    """
    h.refuse("expert_count", "a mixture of experts")
    h.refuse("attn_logit_softcapping", "capped attention scores")
    h.refuse("final_logit_softcapping", "capped logits")
    num_layers, hidden = h.num_layers(), h.integer("embedding_length")
    num_heads = h.integer("attention.head_count")
    num_kv_heads = h.kv_heads(num_layers, num_heads)
    ffn = h.per_layer("feed_forward_length", num_layers)
    head_dim = h.head_dim(hidden, num_heads)
    epsilon = h.number("attention.layer_norm_rms_epsilon")
    scale = (hidden // num_heads if num_layers == LAYERS_OF_27B else head_dim) ** -0.5
    windows = _windows(h, num_layers)
    ropes = _ropes(h, head_dim)
    if not is_causal:
        windows = [None if window is None else window // 2 + 1 for window in windows]

    def linear(x: Value, name: str, width: int) -> Value:
        return b.linear(x, w.require(f"{name}.weight", width, x.width), width)

    def norm(x: Value, name: str, groups: int = 1) -> Value:
        return b.rms_norm(x, w.require(f"{name}.weight", x.width // groups), epsilon, groups)

    embedding = w.require("token_embd.weight", vocab_size, hidden)
    x = b.embed(embedding, hidden, scale=hidden**0.5)
    for i in range(num_layers):
        layer, rope = f"blk.{i}", ropes[windows[i] is not None]
        y = norm(x, f"{layer}.attn_norm")
        q = linear(y, f"{layer}.attn_q", num_heads * head_dim)
        k = linear(y, f"{layer}.attn_k", num_kv_heads[i] * head_dim)
        v = linear(y, f"{layer}.attn_v", num_kv_heads[i] * head_dim)
        q = b.rope(norm(q, f"{layer}.attn_q_norm", num_heads), num_heads, rope)
        k = b.rope(norm(k, f"{layer}.attn_k_norm", num_kv_heads[i]), num_kv_heads[i], rope)
        y = b.attention(q, k, v, num_heads, CacheLayer(num_kv_heads[i], head_dim, windows[i], is_causal=is_causal), scale)
        if is_causal and i == num_layers - 1:  # nothing behind the last attention mixes tokens
            x, y = b.logit_rows(x), b.logit_rows(y)
        x = b.add(x, norm(linear(y, f"{layer}.attn_output", hidden), f"{layer}.post_attention_norm"))
        y = norm(x, f"{layer}.ffn_norm")
        gate, up = linear(y, f"{layer}.ffn_gate", ffn[i]), linear(y, f"{layer}.ffn_up", ffn[i])
        y = linear(b.gated(gate, up, "gelu"), f"{layer}.ffn_down", hidden)
        x = b.add(x, norm(y, f"{layer}.post_ffw_norm"))
    return norm(x, "output_norm"), embedding


def _windows(h: HParams, num_layers: int) -> list[int | None]:
    """Per layer its window, None for one that sees everything: every sixth, unless the file says otherwise."""
    window = h.integer("attention.sliding_window", 0, low=0)
    if window == 0:
        return [None] * num_layers
    pattern = h.get("attention.sliding_window_pattern", 6)
    if isinstance(pattern, np.ndarray):
        if len(pattern) != num_layers or pattern.dtype.kind not in "biu":
            raise ModelFileError(
                f"{h.name}.attention.sliding_window_pattern holds {len(pattern)} values of {pattern.dtype},"
                f" but must say yes or no for each of {num_layers} layers"
            )
        return [window if is_local else None for is_local in pattern]
    period = h.integer("attention.sliding_window_pattern", 6, low=0)
    return [None if period and i % period == period - 1 else window for i in range(num_layers)]


def _ropes(h: HParams, head_dim: int) -> tuple[Rope, Rope]:
    """Rotation of the layers that see everything, and of those with a window: slower there, and never scaled."""
    h.number("rope.freq_base")  # a default would be wrong for every Gemma 3 there is
    full = h.rope(head_dim, "halves")
    base = h.number("rope.freq_base_swa", 10000.0, above=1.0)
    return full, replace(full, base=base, scaling="none", factor=1.0, yarn_attn_factor=1.0)
