"""Llama (Touvron et al. 2023, arXiv:2302.13971; Llama 3, arXiv:2407.21783) and what GGUF stores under its name:
Mistral 7B, SmolLM2, TinyLlama, Yi and others.

Describes the network once, as a Program; knows no numbers and no backend. Next hop: `kernels/ops.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..kernels.ops import Builder, CacheLayer, Program, Value
from .hparams import HParams
from .weights import HasShape, Weights


def build(metadata: Mapping[str, Any], tensors: Mapping[str, HasShape]) -> Program:
    """Write the network of a llama file; ModelFileError or UnsupportedError name the key or tensor at fault."""
    h, w, b = HParams(metadata, "llama"), Weights(tensors), Builder()
    h.refuse("expert_count", "a mixture of experts")
    h.refuse("attention.sliding_window", "a sliding window")
    num_layers, hidden = h.num_layers(), h.integer("embedding_length")
    num_heads = h.integer("attention.head_count")
    num_kv_heads = h.kv_heads(num_layers, num_heads)
    ffn = h.per_layer("feed_forward_length", num_layers)
    head_dim = h.head_dim(hidden, num_heads)
    epsilon = h.number("attention.layer_norm_rms_epsilon")
    # GGUF's converter permutes llama's q and k so that the pairs that turn together are neighbours.
    rope = h.rope(head_dim, "adjacent", w.optional("rope_freqs.weight", head_dim // 2))

    def linear(x: Value, name: str, width: int) -> Value:
        weight = w.require(f"{name}.weight", width, x.width)
        return b.linear(x, weight, width, w.optional(f"{name}.bias", width))

    def norm(x: Value, name: str) -> Value:
        return b.rms_norm(x, w.require(f"{name}.weight", x.width), epsilon)

    vocab_size = w.vocab_size(metadata, "token_embd.weight")
    embedding = w.require("token_embd.weight", vocab_size, hidden)
    x = b.embed(embedding, hidden)
    for i in range(num_layers):
        layer = f"blk.{i}"
        cache = CacheLayer(num_kv_heads[i], head_dim)
        y = norm(x, f"{layer}.attn_norm")
        q = linear(y, f"{layer}.attn_q", num_heads * head_dim)
        k = linear(y, f"{layer}.attn_k", num_kv_heads[i] * head_dim)
        v = linear(y, f"{layer}.attn_v", num_kv_heads[i] * head_dim)
        q, k = b.rope(q, num_heads, rope), b.rope(k, num_kv_heads[i], rope)
        y = b.attention(q, k, v, num_heads, cache, head_dim**-0.5)
        if i == num_layers - 1:  # nothing behind the last attention mixes tokens
            x, y = b.logit_rows(x), b.logit_rows(y)
        x = b.add(x, linear(y, f"{layer}.attn_output", hidden))
        y = norm(x, f"{layer}.ffn_norm")
        gate, up = linear(y, f"{layer}.ffn_gate", ffn[i]), linear(y, f"{layer}.ffn_up", ffn[i])
        x = b.add(x, linear(b.gated(gate, up, "silu"), f"{layer}.ffn_down", hidden))
    x = norm(x, "output_norm")
    output = w.optional("output.weight", vocab_size, hidden) or embedding  # small models tie the two
    logits = b.linear(x, output, vocab_size)
    w.check_all_used("llama")
    return b.finish(logits)
