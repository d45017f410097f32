"""What decoder families share: norms and linear maps checked against the file, self-attention, the gated feed-forward
network, the embedding and the output.

Defaults are what most families do, options what some do; which blocks a network has, in which order, and what is added to
what, stands in its own file. Knows no numbers and no backend. Next hop: `kernels/ops.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Literal

from ..errors import UnsupportedError
from ..kernels.ops import Builder, CacheLayer, Program, Rope, Value
from ..kernels.wanted_rows import keep_wanted_rows
from .hparams import HParams
from .pooling import read_pooling
from .weights import HasShape, Weights

EMBEDDING = "token_embd.weight"
_EPSILON = {"rms": "attention.layer_norm_rms_epsilon", "layer": "attention.layer_norm_epsilon"}


class Blocks:
    """Writes one network. `h` its metadata, `w` its weights, `b` the builder for all that is not shared.

    norm: "rms" or "layer". some_without_attention: their kv_heads are 0. is_causal: False where tokens see those behind them
    too. Methods raise ModelFileError or UnsupportedError that names the key or tensor at fault."""

    last_norm = "output_norm"

    def __init__(
        self,
        metadata: Mapping[str, Any],
        tensors: Mapping[str, HasShape],
        architecture: str,
        norm: Literal["rms", "layer"] = "rms",
        some_without_attention: bool = False,
        is_causal: bool = True,
    ) -> None:
        self.h, self.w, self.b = HParams(metadata, architecture), Weights(tensors), Builder()
        self._metadata, self._architecture, self._norm, self.is_causal = metadata, architecture, norm, is_causal
        self.num_layers, self.hidden = self.h.num_layers(), self.h.integer("embedding_length")
        self.num_heads = self.h.integer("attention.head_count")
        self._least_kv_heads = int(not some_without_attention)
        self.epsilon = self.h.number(_EPSILON[norm])
        self.vocab_size = self.w.vocab_size(metadata, EMBEDDING)

    @cached_property
    def kv_heads(self) -> list[int]:
        """Heads of keys and values of each layer."""
        return self.h.kv_heads(self.num_layers, self.num_heads, low=self._least_kv_heads)

    @cached_property
    def head_dim(self) -> int:
        """Width of a head, where those of keys and of values are as wide."""
        return self.h.head_dim(self.hidden, self.num_heads)

    def embed(self, scale: float = 1.0) -> Value:
        """The tokens' rows of the embedding, times `scale`."""
        return self.b.embed(self.w.require(EMBEDDING, self.vocab_size, self.hidden), self.hidden, scale)

    def norm(self, x: Value, name: str, groups: int = 1, is_shared: bool = True) -> Value:
        """Norm each of `groups` equal parts of a row; all parts share the weight `name`, or a layer norm has one for each."""
        shape = (x.width // groups,) if is_shared else (groups, x.width // groups)
        weight = self.w.require(f"{name}.weight", *shape)
        if self._norm == "rms":
            return self.b.rms_norm(x, weight, self.epsilon, groups)
        return self.b.layer_norm(x, weight, self.w.bias(name, *shape), self.epsilon, groups)

    def linear(self, x: Value, name: str, width: int, start: int = 0, rows: int | None = None) -> Value:
        """x times the matrix `name`, plus its bias if the file has one.

        start: the first row used, if the file keeps several matrices in one that has `rows` rows.
        """
        if start % 8:
            raise UnsupportedError(f"{name}.weight: a part from row {start} on, no multiple of 8, is not supported")
        rows = width if rows is None else rows
        weight = self.w.require(f"{name}.weight", rows, x.width)
        return self.b.linear(x, weight, width, self.w.bias(name, rows), start)

    def qkv(self, x: Value, i: int) -> tuple[Value, Value, Value]:
        """Queries, keys and values of layer i; the file keeps them in three matrices or in one."""
        q, kv, layer = self.num_heads * self.head_dim, self.kv_heads[i] * self.head_dim, f"blk.{i}"
        if self.w.has(f"{layer}.attn_qkv.weight"):
            ends = ((0, q), (q, kv), (q + kv, kv))
            parts = [self.linear(x, f"{layer}.attn_qkv", width, start, q + 2 * kv) for start, width in ends]
        else:
            parts = [self.linear(x, f"{layer}.attn_{c}", width) for c, width in (("q", q), ("k", kv), ("v", kv))]
        return parts[0], parts[1], parts[2]

    def attention(
        self,
        x: Value,
        i: int,
        rope: Rope | None,
        *,
        q_rope: Rope | None = None,
        qk_norm: Literal["heads", "own heads", "rows"] | None = None,
        window: int | None = None,
        scale: float | None = None,
        softcap: float = 0.0,
        sinks: str | None = None,
    ) -> Value:
        """Self-attention of layer i, its output matrix included.

        rope: None leaves queries and keys unturned. q_rope: of the queries, if they turn otherwise than the keys. qk_norm:
        norm queries and keys before they turn, each head by itself (with its own weights) or the heads together. scale: of
        the scores, 1 / sqrt(head_dim) if None. window, softcap, sinks: as the op `attention` has them.
        """
        q, k, v = self.qkv(x, i)
        heads, kv_heads = self.num_heads, self.kv_heads[i]
        if qk_norm is not None:
            q = self.norm(q, f"blk.{i}.attn_q_norm", 1 if qk_norm == "rows" else heads, qk_norm != "own heads")
            k = self.norm(k, f"blk.{i}.attn_k_norm", 1 if qk_norm == "rows" else kv_heads, qk_norm != "own heads")
        if rope is not None:
            q, k = self.b.rope(q, heads, q_rope or rope), self.b.rope(k, kv_heads, rope)
        layer = CacheLayer(kv_heads, self.head_dim, window, is_causal=self.is_causal)
        scale = self.head_dim**-0.5 if scale is None else scale
        y = self.b.attention(q, k, v, heads, layer, scale, softcap=softcap, sinks=sinks)
        return self.linear(y, f"blk.{i}.attn_output", self.hidden)

    def ffn(self, x: Value, i: int, activation: str, *, is_fused: bool = False, name: str = "ffn") -> Value:
        """The gated feed-forward network of layer i: down(activation(gate(x)) * up(x)) (Shazeer 2020, arXiv:2002.05202).

        is_fused: the rows of `up` are those of gate, then those of up.
        """
        size, layer = self.h.per_layer("feed_forward_length", self.num_layers)[i], f"blk.{i}.{name}"
        if is_fused:
            gate = self.linear(x, f"{layer}_up", size, 0, 2 * size)
            up = self.linear(x, f"{layer}_up", size, size, 2 * size)
        else:
            gate, up = self.linear(x, f"{layer}_gate", size), self.linear(x, f"{layer}_up", size)
        return self.linear(self.b.gated(gate, up, activation), f"{layer}_down", self.hidden)

    def finish(self, x: Value, *, scale: float = 1.0, softcap: float = 0.0, softmax_of_scores: bool = False) -> Program:
        """The last norm and the logits, by the embedding's matrix if the file has no other: the whole program.

        scale, softcap: what the logits are multiplied by, and capped at; 0: no cap. softmax_of_scores: see read_pooling.
        """
        x = self.norm(x, self.last_norm)
        output = self.w.optional("output.weight", self.vocab_size, self.hidden) or EMBEDDING
        logits = self.b.linear(x, output, self.vocab_size, self.w.optional("output.bias", self.vocab_size))
        logits = self.b.scale(logits, scale) if scale != 1.0 else logits
        logits = self.b.softcap(logits, softcap) if softcap else logits
        head = read_pooling(self.h, self.w, self.hidden, "last", softmax_of_scores)
        self.w.check_all_used(self._architecture)
        return keep_wanted_rows(self.b.finish(logits, pooling=head))
