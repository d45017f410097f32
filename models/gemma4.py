"""Gemma 4, the text part (Google 2026, ai.google.dev/gemma/docs/core/model_card_4): Gemma 3's blocks with values that are normed,
unscaled scores, layers without keys and values that read those of an earlier one, and small embeddings of each token for each
layer (as in Gemma 3n, ai.google.dev/gemma/docs/gemma-3n). The 26B-A4B adds experts beside each feed-forward network.

Describes the network once, as a Program; knows no numbers and no backend. Next hop: `blocks.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..errors import ModelFileError, UnsupportedError
from ..kernels.ops import CacheLayer, Program, Rope, Value
from .blocks import Blocks
from .experts import Mixture, read_mixture, write_experts
from .hparams import HParams
from .weights import HasShape
from .windows import read_windows


def build(metadata: Mapping[str, Any], tensors: Mapping[str, HasShape]) -> Program:
    """Write the network of a gemma4 file; ModelFileError or UnsupportedError name the key or tensor at fault."""
    n = Blocks(metadata, tensors, "gemma4")
    mixture = read_mixture(n.h, normalised=True) if n.h.integer("expert_count", 0, low=0) else None
    windows = read_windows(n.h, n.num_layers, period=6)
    attention = _Attention(n, windows)
    x = n.embed(scale=n.hidden**0.5)
    small = _small_embeddings(n, x)
    for i in range(n.num_layers):
        y = attention.write(n.norm(x, f"blk.{i}.attn_norm"), i)
        x = n.b.add(x, n.norm(y, f"blk.{i}.post_attention_norm"))
        y = n.ffn(n.norm(x, f"blk.{i}.ffn_norm"), i, "gelu")
        if mixture is not None:
            y = n.b.add(n.norm(y, f"blk.{i}.post_ffw_norm_1"), _experts(n, x, i, mixture))
        x = n.b.add(x, n.norm(y, f"blk.{i}.post_ffw_norm"))
        if small is not None:
            width = small.width // n.num_layers
            gate = n.linear(x, f"blk.{i}.inp_gate", width)
            y = n.linear(n.b.gated(gate, n.b.columns(small, i * width, width), "gelu"), f"blk.{i}.proj", n.hidden)
            x = n.b.add(x, n.norm(y, f"blk.{i}.post_norm"))
        factor = n.w.optional(f"blk.{i}.layer_output_scale.weight", 1)
        x = x if factor is None else n.b.scale(x, 1.0, factor)
    return n.finish(x, softcap=n.h.number_or_zero("final_logit_softcapping"))


def _experts(n: Blocks, x: Value, i: int, mixture: Mixture) -> Value:
    """What layer i's experts add to its feed-forward network; their router looks at x by a norm of its own."""
    scale = n.w.require(f"blk.{i}.ffn_gate_inp.scale", n.hidden)
    router_x = n.b.scale(n.b.rms_norm(x, scale, n.epsilon), n.hidden**-0.5)
    y = n.norm(x, f"blk.{i}.pre_ffw_norm_2")
    n.w.require(f"blk.{i}.ffn_down_exps.scale", mixture.routing.num_experts)
    y = write_experts(n.b, n.w, f"blk.{i}", y, mixture, "gelu", router_x=router_x)
    return n.norm(y, f"blk.{i}.post_ffw_norm_2")


def _small_embeddings(n: Blocks, x: Value) -> Value | None:
    """What each layer gets of each token beside x, layer by layer; None for models without."""
    width = n.h.integer("embedding_length_per_layer_input", 0, low=0)
    if not width:
        return None
    if width % 8:
        raise UnsupportedError(f"gemma4.embedding_length_per_layer_input is {width}: only multiples of 8 are supported")
    all_layers = n.num_layers * width
    own = n.b.embed(n.w.require("per_layer_token_embd.weight", n.vocab_size, all_layers), all_layers, width**0.5)
    y = n.b.scale(n.linear(x, "per_layer_model_proj", all_layers), n.hidden**-0.5)
    return n.b.scale(n.b.add(n.norm(y, "per_layer_proj_norm", n.num_layers), own), 2**-0.5)


class _Attention:
    """Writes the attention of each layer. Layers with a window and those without differ in heads and in how they turn."""

    def __init__(self, n: Blocks, windows: list[int | None]) -> None:
        self.n, self.windows = n, windows
        full = n.h.head_dim(n.hidden, n.num_heads)
        local = n.h.integer("attention.key_length_swa", full)
        if n.h.integer("attention.value_length_swa", local) != local:
            raise UnsupportedError("gemma4 models with values of another width than keys are not supported")
        factors = n.w.require("rope_freqs.weight", full // 2) if None in windows else None
        self.head_dims, self.ropes = (full, local), _ropes(n.h, full, local, factors)
        self.sources = _sources(n.h, windows)
        own = [i for i, window in enumerate(windows) if window is None and self.sources[i] == i]
        self.full_have_values = any(n.w.has(f"blk.{i}.attn_v.weight") for i in own)  # or keys are the values too
        self.outputs: list[Value] = []

    def write(self, x: Value, i: int) -> Value:
        """Self-attention of layer i, its output matrix included. Layers are written in order."""
        n, b, layer, is_local = self.n, self.n.b, f"blk.{i}", self.windows[i] is not None
        head_dim, rope, heads, kv_heads = self.head_dims[is_local], self.ropes[is_local], n.num_heads, n.kv_heads[i]
        q = n.norm(n.linear(x, f"{layer}.attn_q", heads * head_dim), f"{layer}.attn_q_norm", heads)
        q, kv, k_norm = b.rope(q, heads, rope), kv_heads * head_dim, f"{layer}.attn_k_norm"
        if self.sources[i] == i:
            k = n.linear(x, f"{layer}.attn_k", kv)
            v = n.linear(x, f"{layer}.attn_v", kv) if is_local or self.full_have_values else k
            v = b.rms_norm(v, None, n.epsilon, kv_heads)
            k = b.rope(n.norm(k, k_norm, kv_heads), kv_heads, rope)
            y = b.attention(q, k, v, heads, CacheLayer(kv_heads, head_dim, self.windows[i]), 1.0)
        else:
            for name in ("attn_k", "attn_v"):  # files may hold what was trained before layers shared
                n.w.allow(f"{layer}.{name}.weight", kv, n.hidden)
            n.w.allow(f"{k_norm}.weight", head_dim)
            y = b.attention_again(q, self.outputs[self.sources[i]], heads, 1.0)
        self.outputs.append(y)
        return n.linear(y, f"{layer}.attn_output", n.hidden)


def _sources(h: HParams, windows: list[int | None]) -> list[int]:
    """Per layer the layer whose keys and values it reads: itself, or the last of its kind that has some."""
    shared = h.integer("attention.shared_kv_layers", 0, low=0, high=len(windows))
    first = len(windows) - shared
    last = {window is None: i for i, window in enumerate(windows[:first])}
    if any((window is None) not in last for window in windows):
        raise ModelFileError(f"gemma4.attention.shared_kv_layers is {shared}: no layer before those is of their kind")
    return [i if i < first else last[window is None] for i, window in enumerate(windows)]


def _ropes(h: HParams, full_dim: int, local_dim: int, factors: str | None) -> tuple[Rope, Rope]:
    """Rotation of the layers that see everything, a part of each head by means of `factors`, and of those with a window."""
    h.number("rope.freq_base")  # a default would be wrong for every Gemma 4 there is
    full, dim = h.rope(full_dim, "halves", factors), h.integer("rope.dimension_count_swa", local_dim)
    if dim > local_dim or dim % 2:
        raise ModelFileError(f"gemma4.rope.dimension_count_swa is {dim}, but must be even and at most {local_dim}")
    return full, replace(h.local_rope(full, 10000.0, is_scaled=False), dim=dim, factors=None)
