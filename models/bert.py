"""BERT (Devlin et al. 2019, arXiv:1810.04805) and its kin: encoders, whose tokens see those before and behind them.

What embeds and ranks: all-MiniLM, bge, e5, gte, Snowflake Arctic. RoBERTa files have the same tensors; their converter has
dropped the rows of positions that no token gets. `nomic_bert.py` uses `encoder` with other options.
Describes the network once, as a Program; knows no numbers and no backend. Next hop: `kernels/ops.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import ModelFileError
from ..kernels.ops import Builder, CacheLayer, Program, Rope, Value
from . import pooling
from .hparams import HParams
from .weights import HasShape, Weights


def build(metadata: Mapping[str, Any], tensors: Mapping[str, HasShape]) -> Program:
    """Write the network of a bert file; ModelFileError or UnsupportedError name the key or tensor at fault."""
    return Encoder("bert", metadata, tensors).build()


class Encoder:
    """The network of one file: post-norm blocks. is_gated: of the feed-forward part, by silu. has_rope: instead of a vector
    for each position."""

    def __init__(
        self,
        architecture: str,
        metadata: Mapping[str, Any],
        tensors: Mapping[str, HasShape],
        *,
        is_gated: bool = False,
        has_rope: bool = False,
    ) -> None:
        self.architecture, self.metadata = architecture, metadata
        self.h, self.w, self.b = HParams(metadata, architecture), Weights(tensors), Builder()
        self.num_layers, self.hidden = self.h.num_layers(), self.h.integer("embedding_length")
        self.num_heads = self.h.integer("attention.head_count")
        self.num_kv_heads = self.h.kv_heads(self.num_layers, self.num_heads)
        self.head_dim = self.h.head_dim(self.hidden, self.num_heads)
        self.epsilon = self.h.number("attention.layer_norm_epsilon")
        self.ffn = self.h.per_layer("feed_forward_length", self.num_layers)
        self.is_gated = is_gated
        self.rope = self.h.rope(self.head_dim, "halves") if has_rope else None
        if self.h.get("attention.causal", False) not in (False, 0):
            raise ModelFileError(f"{architecture}.attention.causal must be false: its tokens see those behind them too")

    def build(self) -> Program:
        """Write all of it."""
        x = self.embed()
        for i in range(self.num_layers):
            x = self.layer(x, i)
        head = pooling.read(self.h, self.w, self.hidden)
        self.w.check_all_used(self.architecture)
        return self.b.finish(self.b.logit_rows(x), makes_logits=False, pooling=head)

    def embed(self) -> Value:
        """Token, type and position, added and normed."""
        w, b, hidden = self.w, self.b, self.hidden
        vocab_size = w.vocab_size(self.metadata, "token_embd.weight")
        x = b.embed(w.require("token_embd.weight", vocab_size, hidden), hidden)
        num_types = self._num_types()
        types = w.optional("token_types.weight", num_types, hidden)
        if types is not None:
            x = b.add(x, b.embed(types, hidden, by="token_types", rows=num_types))
        if self.rope is None:
            rows = self.h.integer("context_length")
            positions = w.require("position_embd.weight", rows, hidden)
            x = b.add(x, b.embed(positions, hidden, by="positions", rows=rows))
        return self.norm(x, "token_embd_norm")

    def layer(self, x: Value, i: int) -> Value:
        """One block: attention, then the feed-forward part, each added to what it reads and then normed."""
        b, layer = self.b, f"blk.{i}"
        q, k, v = self.qkv(x, i)
        rope = self.rope
        if rope is not None:
            q, k = b.rope(q, self.num_heads, rope), b.rope(k, self.num_kv_heads[i], rope)
        place = CacheLayer(self.num_kv_heads[i], self.head_dim, is_causal=False)
        y = b.attention(q, k, v, self.num_heads, place, self.head_dim**-0.5)
        x = self.norm(b.add(x, self.linear(y, f"{layer}.attn_output", self.hidden)), f"{layer}.attn_output_norm")
        y = self.linear(x, f"{layer}.ffn_up", self.ffn[i])
        if self.is_gated:
            y = b.gated(self.linear(x, f"{layer}.ffn_gate", self.ffn[i]), y, "silu")
        else:
            y = b.activate(y, "gelu_erf")
        return self.norm(b.add(x, self.linear(y, f"{layer}.ffn_down", self.hidden)), f"{layer}.layer_output_norm")

    def qkv(self, x: Value, i: int) -> tuple[Value, Value, Value]:
        """Queries, keys and values: three matrices, or the rows of one."""
        layer, w, dim = f"blk.{i}", self.w, self.head_dim
        widths = (self.num_heads * dim, self.num_kv_heads[i] * dim, self.num_kv_heads[i] * dim)
        fused = w.optional(f"{layer}.attn_qkv.weight", sum(widths), x.width)
        if fused is None:
            names = (f"{layer}.attn_{part}" for part in "qkv")
            q, k, v = (self.linear(x, name, width) for name, width in zip(names, widths, strict=True))
            return q, k, v
        bias = w.optional(f"{layer}.attn_qkv.bias", sum(widths))
        starts = (0, widths[0], widths[0] + widths[1])
        q, k, v = (
            self.b.linear(x, fused, width, bias, start) for width, start in zip(widths, starts, strict=True)
        )
        return q, k, v

    def linear(self, x: Value, name: str, width: int) -> Value:
        """A matrix, with a bias if the file has one."""
        weight = self.w.require(f"{name}.weight", width, x.width)
        return self.b.linear(x, weight, width, self.w.optional(f"{name}.bias", width))

    def norm(self, x: Value, name: str) -> Value:
        """A layer norm with weight and bias."""
        weight, bias = self.w.require(f"{name}.weight", x.width), self.w.optional(f"{name}.bias", x.width)
        return self.b.layer_norm(x, weight, bias, self.epsilon)

    def _num_types(self) -> int:
        count = self.metadata.get("tokenizer.ggml.token_type_count", 1)
        if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count < 2**31:
            raise ModelFileError(f"tokenizer.ggml.token_type_count is {count!r}, but must be a whole number")
        return count
