"""DeepSeek-V2 (arXiv:2405.04434), V2-Lite, V3 and R1 (arXiv:2412.19437), and what else GGUF stores under this name: latent
attention, a few layers without experts, then many small experts beside shared ones.

Describes the network once, as a Program; knows no numbers and no backend. Next hop: `latent.py`, `experts.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..kernels.ops import Program, Value
from .blocks import EMBEDDING, Blocks
from .experts import Mixture, read_mixture, write_experts
from .latent import read_latent, write_attention
from .weights import HasShape

_GLM_LAYERS, _GLM_VOCABULARY = (47, 48), 154880
"""Of GLM 4.7 Flash, whose first files do not say that scores are sigmoids."""


def build(metadata: Mapping[str, Any], tensors: Mapping[str, HasShape]) -> Program:
    """Write the network of a deepseek2 file; ModelFileError or UnsupportedError name the key or tensor at fault."""
    n = Blocks(metadata, tensors, "deepseek2")
    n.h.refuse("attention.temperature_scale", "attention scores that depend on the position")
    n.h.refuse("nextn_predict_layers", "layers that guess further tokens")
    latent = read_latent(n.h)
    num_dense = n.h.integer("leading_dense_block_count", 0, low=0)
    mixture = None
    if num_dense < n.num_layers:
        is_glm = n.num_layers in _GLM_LAYERS and n.w.vocab_size(metadata, EMBEDDING) == _GLM_VOCABULARY
        mixture = read_mixture(n.h, scores="sigmoid" if is_glm else "softmax")
        # V2 calls a group as good as its best expert, V3 as its two best.
        best = 1 if mixture.routing.scores == "softmax" else 2
        mixture = replace(mixture, routing=replace(mixture.routing, group_best=best))
    x = n.embed()
    for i in range(n.num_layers):
        x = n.b.add(x, write_attention(n, n.norm(x, f"blk.{i}.attn_norm"), i, latent))
        y = n.norm(x, f"blk.{i}.ffn_norm")
        x = n.b.add(x, n.ffn(y, i, "silu") if mixture is None or i < num_dense else _mixture(n, y, i, mixture))
    return n.finish(x)


def _mixture(n: Blocks, x: Value, i: int, mixture: Mixture) -> Value:
    """The chosen experts and the shared ones, which the file keeps as one of their width together."""
    layer, y = f"blk.{i}", write_experts(n.b, n.w, f"blk.{i}", x, mixture)
    shared = n.h.integer("expert_shared_count", 0, low=0) * mixture.ffn
    if not shared:
        return y
    gate, up = (n.linear(x, f"{layer}.ffn_{name}_shexp", shared) for name in ("gate", "up"))
    return n.b.add(y, n.linear(n.b.gated(gate, up, "silu"), f"{layer}.ffn_down_shexp", n.hidden))
