"""The vocabulary of operations: THE contract between models and backends.

A model is a `Program`: a list of ops on values, each value an f32[T, width] matrix with one row per token of the batch.
`Builder` writes one; `reference.py` gives every op its meaning in plain NumPy; `cpu/lower.py` turns the list into machine
calls. This file knows no architecture, no file format and no instruction set. Weights are named, never held.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

ACTIVATIONS = ("silu", "gelu", "gelu_erf", "relu", "sigmoid", "softplus")
"""silu: x / (1 + exp(-x)). gelu: the tanh form, gelu_erf the exact one (Hendrycks, Gimpel 2016). softplus: log(1 + exp(x))."""
GATED_ACTIVATIONS = (*ACTIVATIONS, "swiglu_clamped")
"""swiglu_clamped (GPT-OSS): g sigmoid(1.702 g) (u + 1), with g = min(gate, 7) and u = up between -7 and 7."""
SCORES = ("softmax", "sigmoid", "softmax_of_used")
"""How a router's logits become scores: over all experts, each by itself, or over the chosen ones after the choice."""

MULTIPLIES = ("linear", "head_linear")
"""Ops that multiply with one matrix, the first of their weights."""


@dataclass(frozen=True, slots=True)
class Value:
    """One f32[T, width] matrix of a program; `index` is its number."""

    index: int
    width: int


@dataclass(frozen=True, slots=True)
class HeadPart:
    """Columns start .. start + width of each of the num_heads heads of a value; multiples of 8."""

    value: Value
    num_heads: int
    start: int
    width: int


@dataclass(frozen=True, slots=True)
class Op:
    """One operation: `name` is a method of Builder, which says what inputs, weights and attributes mean."""

    name: str
    inputs: tuple[Value, ...]
    output: Value
    weights: tuple[str, ...] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Rope:
    """How positions turn a head: `dim` leading values of each head are rotated in pairs.

    pairs: "adjacent" rotates (0, 1), (2, 3) ...; "halves" rotates (i, i + dim / 2).
    scaling: "none", "linear" or "yarn". factors: name of a weight f32[dim / 2] that divides the inverse frequencies.
    yarn's fields are those of Peng et al. 2023 (arXiv:2309.00071); yarn_truncate: the ramp ends at whole pairs, as there.
    short_factors, long_factors: what `factors` is chosen from for contexts of at most original_context tokens, and for longer
    ones (`context_rope.py`). temperature: rotated pairs at position p grow by 1 + temperature * log(1 + p // temperature_length).
    """

    dim: int
    base: float
    pairs: str
    scaling: str = "none"
    factor: float = 1.0
    original_context: int = 0
    yarn_ext_factor: float = 1.0
    yarn_attn_factor: float = 1.0
    yarn_beta_fast: float = 32.0
    yarn_beta_slow: float = 1.0
    yarn_truncate: bool = True
    factors: str | None = None
    short_factors: str | None = None
    long_factors: str | None = None
    temperature: float = 0.0
    temperature_length: int = 1


@dataclass(frozen=True, slots=True)
class CacheLayer:
    """What one attention op keeps: K and V of `num_kv_heads` heads; `window` tokens (current one included) or all.

    num_sink_tokens: first tokens of a sequence that stay in reach beside the window; 0 without a window.
    value_dim: width of a head of V; None: head_dim, that of K.
    """

    num_kv_heads: int
    head_dim: int
    window: int | None = None
    num_sink_tokens: int = 0
    value_dim: int | None = None

    @property
    def dims(self) -> tuple[int, int]:
        """Widths of a head of K and of V."""
        return self.head_dim, self.head_dim if self.value_dim is None else self.value_dim


@dataclass(frozen=True, slots=True)
class Routing:
    """Which `num_used` of `num_experts` a token goes to, and with which weights (Shazeer et al. 2017, arXiv:1701.06538).

    scores: one of SCORES. normalised: the chosen scores are divided by their sum. scale: of the weights, then.
    num_groups: equal groups of neighbouring experts, of which the best `num_groups_used` stay in the choice; a group is as
    good as the sum of its `group_best` best scores: 1 in DeepSeek V2 (arXiv:2405.04434), 2 in V3 (arXiv:2412.19437).
    """

    num_experts: int
    num_used: int
    scores: str = "softmax"
    normalised: bool = False
    scale: float = 1.0
    num_groups: int = 1
    num_groups_used: int = 1
    group_best: int = 2


@dataclass(frozen=True, slots=True)
class Program:
    """A network: its ops in order, the value that holds the logits, and the cache layers that its attention ops use."""

    ops: tuple[Op, ...]
    output: Value
    cache_layers: tuple[CacheLayer, ...]

    @property
    def hidden(self) -> Value:
        """What the last matrix makes logits of: the hidden states, after the final norm."""
        return self.ops[self._last_matrix].inputs[0]

    def without_logits(self) -> Program:
        """The program that ends there."""
        return replace(self, ops=self.ops[: self._last_matrix], output=self.hidden)

    @property
    def _last_matrix(self) -> int:
        """Its op; logits may be scaled and capped behind it."""
        return max(i for i, op in enumerate(self.ops) if op.name == "linear")


@dataclass(frozen=True, slots=True)
class Batch:
    """Work for one forward pass: T tokens of any number of sequences, those of a sequence adjacent and in order.

    token_ids: i32[T]. positions: i64[T]. sequences: i32[T], row of each token in the block tables.
    block_tables: per cache group i32[S, tiles]; entry t of a row is the block that holds positions 64 t to 64 t + 63.
    logit_rows: i32[N], ascending: the tokens whose logits are wanted.
    hidden_rows: i32[M], ascending: the tokens whose hidden states are wanted, which are what the last matrix reads.
    """

    token_ids: NDArray[np.int32]
    positions: NDArray[np.int64]
    sequences: NDArray[np.int32]
    block_tables: tuple[NDArray[np.int32], ...]
    logit_rows: NDArray[np.int32]
    hidden_rows: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))


class Aborted(Exception):
    """A backend's `run` was told to stop: its batch counts as not computed, whatever the cache got of it."""


class Builder:
    """Writes a Program. Every method appends one op and returns its output; docstrings are the ops' definitions."""

    def __init__(self) -> None:
        self._ops: list[Op] = []
        self._layers: list[CacheLayer] = []
        self._values = 0

    def _append(
        self, name: str, inputs: Sequence[Value], width: int, weights: Sequence[str | None] = (), **attributes: Any
    ) -> Value:
        output = Value(self._values, width)
        self._values += 1
        named = tuple(w for w in weights if w is not None)
        self._ops.append(Op(name, tuple(inputs), output, named, attributes))
        return output

    def embed(self, table: str, width: int, scale: float = 1.0) -> Value:
        """x[t] = scale * table[token_ids[t]]; the table is (vocab_size, width)."""
        return self._append("embed", (), width, (table,), scale=scale)

    def rms_norm(self, x: Value, weight: str | None, epsilon: float, groups: int = 1) -> Value:
        """Each of `groups` equal parts p of a row becomes p / sqrt(mean(p^2) + epsilon) * weight (Zhang, Sennrich 2019).

        weight: None stands for ones.
        """
        return self._append("rms_norm", (x,), x.width, (weight,), epsilon=epsilon, groups=groups)

    def layer_norm(self, x: Value, weight: str, bias: str | None, epsilon: float, groups: int = 1) -> Value:
        """Each of `groups` equal parts p of a row becomes (p - mean) / sqrt(variance + epsilon) * weight + bias
        (Ba et al. 2016).

        weight, bias: as long as a part; or of shape (groups, length of a part), then each part has its own.
        """
        attributes = {"epsilon": epsilon, "groups": groups, "bias": bias is not None}
        return self._append("layer_norm", (x,), x.width, (weight, bias), **attributes)

    def linear(self, x: Value, weight: str, width: int, bias: str | None = None, start: int = 0) -> Value:
        """y = x @ weight[start : start + width].T + bias[start : start + width]; a row of the weight is x.width long.

        start: a multiple of 8, for weights that a file keeps in one matrix.
        """
        assert start % 8 == 0, "parts of a matrix begin at whole groups of eight rows"
        return self._append("linear", (x,), width, (weight, bias), bias=bias is not None, start=start)

    def head_linear(self, x: Value, weight: str, num_heads: int, width: int) -> Value:
        """Each head of x times a matrix of its own: y_h = x_h @ weight[h].T; the weight is (num_heads, width, K).

        width and K, the width of x's heads, are multiples of 8.
        """
        assert x.width % num_heads == width % 8 == x.width // num_heads % 8 == 0
        return self._append("head_linear", (x,), num_heads * width, (weight,), num_heads=num_heads)

    def join_heads(self, num_heads: int, *parts: HeadPart) -> Value:
        """Head h of the result is columns of head h of the first value, then those of the second; one or two parts.

        A value of one head gives it to all (DeepSeek-V2's rotated keys).
        """
        assert 1 <= len(parts) <= 2 and all(p.start % 8 == p.width % 8 == 0 for p in parts)
        width = num_heads * sum(p.width for p in parts)
        shapes = tuple((p.num_heads, p.start, p.width) for p in parts)
        return self._append("join_heads", [p.value for p in parts], width, num_heads=num_heads, parts=shapes)

    def rope(self, x: Value, num_heads: int, rope: Rope, last_position: int | None = None) -> Value:
        """Rotate each head by its token's position (Su et al. 2021), or by `last_position` where that is less."""
        weights, attributes = (rope.factors,), {"rope": rope, "last_position": last_position}
        return self._append("rope", (x,), x.width, weights, num_heads=num_heads, **attributes)

    def attention(
        self,
        q: Value,
        k: Value,
        v: Value,
        num_heads: int,
        layer: CacheLayer,
        scale: float,
        *,
        softcap: float = 0.0,
        sinks: str | None = None,
        sink_q: Value | None = None,
    ) -> Value:
        """Append k and v to the sequence's cache, then softmax(scale q k^T) v over the positions in reach.

        Reach of position p: 0..p, or p - window + 1..p and 0..num_sink_tokens - 1. Query head h uses kv head
        h // (num_heads / num_kv_heads). softcap: scores s become softcap * tanh(s / softcap) (Gemma 2); 0: no cap.
        sinks: f32[num_heads], per head a score of a token without a value, which takes part in the softmax (GPT-OSS).
        sink_q: the queries that meet sink tokens which have left the window (Xiao et al. 2023, arXiv:2309.17453, turns
        them as if the sinks lay right before it); q if None.
        """
        self._layers.append(layer)
        index = len(self._layers) - 1
        inputs = (q, k, v) if sink_q is None else (q, k, v, sink_q)
        attributes = {"layer": index, "scale": scale, "softcap": softcap, "again": False}
        width = num_heads * layer.dims[1]
        return self._append("attention", inputs, width, (sinks,), num_heads=num_heads, **attributes)

    def attention_again(self, q: Value, first: Value, num_heads: int, scale: float) -> Value:
        """Let other queries see what an earlier attention op keeps: that whose output is `first`. Nothing is kept anew.

        It is an op `attention` with that op's k, v and layer; its attribute `again` says that they are in the cache.
        """
        op = next(op for op in self._ops if op.output == first and op.name == "attention")
        layer, inputs = op.attributes["layer"], (q, *op.inputs[1:3])
        attributes = {"layer": layer, "scale": scale, "softcap": 0.0, "again": True}
        width = num_heads * self._layers[layer].dims[1]
        return self._append("attention", inputs, width, (), num_heads=num_heads, **attributes)

    def gated(self, gate: Value, up: Value, activation: str) -> Value:
        """activation(gate) * up; activation: one of ACTIVATIONS."""
        return self._append("gated", (gate, up), gate.width, (), activation=activation)

    def activate(self, x: Value, activation: str) -> Value:
        """activation(x), element by element; activation: one of ACTIVATIONS."""
        return self._append("activate", (x,), x.width, (), activation=activation)

    def multiply(self, x: Value, y: Value) -> Value:
        """x * y; y is as wide as x, or has one number for each token."""
        assert y.width in (1, x.width)
        return self._append("multiply", (x, y), x.width)

    def scale(self, x: Value, factor: float, weight: str | None = None) -> Value:
        """x * factor, times the one number of `weight`, if one is named."""
        return self._append("scale", (x,), x.width, (weight,), factor=factor)

    def softcap(self, x: Value, cap: float) -> Value:
        """cap * tanh(x / cap) (Gemma 2)."""
        return self._append("softcap", (x,), x.width, (), cap=cap)

    def columns(self, x: Value, start: int, width: int) -> Value:
        """x[:, start : start + width]; both are multiples of 8."""
        assert start % 8 == width % 8 == 0 and start + width <= x.width
        return self._append("columns", (x,), width, (), start=start)

    def route(self, logits: Value, routing: Routing, bias: str | None = None, scales: str | None = None) -> Value:
        """The chosen experts of each token and their weights: [0:num_used] their numbers, best first, [num_used:] weights.

        logits: num_experts wide. bias: f32[num_experts], added to the scores for the choice, not in the weights (Wang et al.
        2024, arXiv:2408.15664). scales: f32[num_experts], what each expert's weight is multiplied by at last (Gemma 4).
        Among equals the lower number comes first. Sums below 2**-14 do not normalise.
        """
        assert logits.width == routing.num_experts and routing.scores in SCORES
        attributes = {"routing": routing, "bias": bias is not None, "scales": scales is not None}
        return self._append("route", (logits,), 2 * routing.num_used, (bias, scales), **attributes)

    def experts(
        self,
        x: Value,
        routed: Value,
        routing: Routing,
        ffn: int,
        gate: str,
        up: str | None,
        down: str,
        activation: str = "silu",
        biases: tuple[str, str, str] | None = None,
    ) -> Value:
        """The sum, best expert first, of weight * down_e(gated(gate_e(x), up_e(x))) over the experts e that `route` chose.

        gate, up: (num_experts, ffn, x.width); up None: gate is (num_experts, 2 ffn, x.width), each expert's gate before its
        up. down: (num_experts, x.width, ffn). biases: of gate, up, down, f32[num_experts, rows]. activation: one of
        GATED_ACTIVATIONS. ffn and x.width are multiples of 8.
        """
        assert ffn % 8 == x.width % 8 == 0 and (biases is None or up is not None)
        matrices = tuple(name for name in (gate, up, down) if name is not None)
        attributes = {"routing": routing, "ffn": ffn, "activation": activation, "matrices": len(matrices)}
        return self._append("experts", (x, routed), x.width, (*matrices, *(biases or ())), **attributes)

    def add(self, x: Value, y: Value) -> Value:
        """x + y."""
        return self._append("add", (x, y), x.width)

    def logit_rows(self, x: Value) -> Value:
        """Keep only the rows of the batch whose logits are wanted; ops after it work on those."""
        return self._append("logit_rows", (x,), x.width)

    def finish(self, logits: Value) -> Program:
        """The program whose result is `logits`."""
        return Program(tuple(self._ops), logits, tuple(self._layers))
