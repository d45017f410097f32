"""The vocabulary of operations: THE contract between models and backends.

A model is a `Program`: a list of ops on values, each value an f32[T, width] matrix with one row per token of the batch.
`Builder` writes one; `reference.py` gives every op its meaning in plain NumPy; `cpu/lower.py` turns the list into machine
calls. This file knows no architecture, no file format and no instruction set. Weights are named, never held.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

ACTIVATIONS = ("silu", "gelu", "gelu_erf", "relu", "sigmoid", "softplus")
"""silu: x / (1 + exp(-x)). gelu: the tanh form, gelu_erf the exact one (Hendrycks, Gimpel 2016). softplus: log(1 + exp(x))."""


NO_ADAPTERS = np.zeros((0, 0), np.float32)
"""The scales of a batch whose sequences use the model as it is."""


@dataclass(frozen=True, slots=True)
class Value:
    """One f32[T, width] matrix of a program; `index` is its number."""

    index: int
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
    yarn's fields are those of Peng et al. 2023 (arXiv:2309.00071).
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
    factors: str | None = None


@dataclass(frozen=True, slots=True)
class CacheLayer:
    """What one attention op keeps: K and V of `num_kv_heads` heads; `window` tokens (current one included) or all.

    num_sink_tokens: first tokens of a sequence that stay in reach beside the window; 0 without a window.
    """

    num_kv_heads: int
    head_dim: int
    window: int | None = None
    num_sink_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Program:
    """A network: its ops in order, the value that holds the logits, and the cache layers that its attention ops use."""

    ops: tuple[Op, ...]
    output: Value
    cache_layers: tuple[CacheLayer, ...]

    @property
    def hidden(self) -> Value:
        """What the last matrix makes logits of: the hidden states, after the final norm."""
        return self.ops[-1].inputs[0]

    def without_logits(self) -> Program:
        """The program that ends there."""
        return Program(self.ops[:-1], self.hidden, self.cache_layers)


@dataclass(frozen=True, slots=True)
class Batch:
    """Work for one forward pass: T tokens of any number of sequences, those of a sequence adjacent and in order.

    token_ids: i32[T]. positions: i64[T]. sequences: i32[T], row of each token in the block tables.
    block_tables: per cache group i32[S, tiles]; entry t of a row is the block that holds positions 64 t to 64 t + 63.
    logit_rows: i32[N], ascending: the tokens whose logits are wanted.
    hidden_rows: i32[M], ascending: the tokens whose hidden states are wanted, which are what the last matrix reads.
    adapter_scales: f32[A, T], how much of each adapter a token gets; f32[0, 0] where no token gets any.
    """

    token_ids: NDArray[np.int32]
    positions: NDArray[np.int64]
    sequences: NDArray[np.int32]
    block_tables: tuple[NDArray[np.int32], ...]
    logit_rows: NDArray[np.int32]
    hidden_rows: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))
    adapter_scales: NDArray[np.float32] = field(default_factory=lambda: NO_ADAPTERS)


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

    def rms_norm(self, x: Value, weight: str, epsilon: float, groups: int = 1) -> Value:
        """Each of `groups` equal parts p of a row becomes p / sqrt(mean(p^2) + epsilon) * weight (Zhang, Sennrich 2019)."""
        return self._append("rms_norm", (x,), x.width, (weight,), epsilon=epsilon, groups=groups)

    def layer_norm(self, x: Value, weight: str, bias: str | None, epsilon: float, groups: int = 1) -> Value:
        """Each of `groups` equal parts p of a row becomes (p - mean) / sqrt(variance + epsilon) * weight + bias
        (Ba et al. 2016)."""
        attributes = {"epsilon": epsilon, "groups": groups, "bias": bias is not None}
        return self._append("layer_norm", (x,), x.width, (weight, bias), **attributes)

    def linear(self, x: Value, weight: str, width: int, bias: str | None = None, start: int = 0) -> Value:
        """y = x @ weight[start : start + width].T + bias[start : start + width]; a row of the weight is x.width long.

        start: a multiple of 8, for weights that a file keeps in one matrix.
        """
        assert start % 8 == 0, "parts of a matrix begin at whole groups of eight rows"
        return self._append("linear", (x,), width, (weight, bias), bias=bias is not None, start=start)

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
        attributes = {"layer": index, "scale": scale, "softcap": softcap}
        width = num_heads * layer.head_dim
        return self._append("attention", inputs, width, (sinks,), num_heads=num_heads, **attributes)

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

    def scale(self, x: Value, factor: float) -> Value:
        """x * factor."""
        return self._append("scale", (x,), x.width, (), factor=factor)

    def softcap(self, x: Value, cap: float) -> Value:
        """cap * tanh(x / cap) (Gemma 2)."""
        return self._append("softcap", (x,), x.width, (), cap=cap)

    def columns(self, x: Value, start: int, width: int) -> Value:
        """x[:, start : start + width]; both are multiples of 8."""
        assert start % 8 == width % 8 == 0 and start + width <= x.width
        return self._append("columns", (x,), width, (), start=start)

    def add(self, x: Value, y: Value) -> Value:
        """x + y."""
        return self._append("add", (x, y), x.width)

    def adapter_scale(self, x: Value, adapter: int, factor: float = 1.0) -> Value:
        """x * (factor * the scale that the batch gives this adapter for the token); 0 where that scale is 0."""
        return self._append("adapter_scale", (x,), x.width, (), adapter=adapter, factor=factor)

    def logit_rows(self, x: Value) -> Value:
        """Keep only the rows of the batch whose logits are wanted; ops after it work on those."""
        return self._append("logit_rows", (x,), x.width)

    def finish(self, logits: Value) -> Program:
        """The program whose result is `logits`."""
        return Program(tuple(self._ops), logits, tuple(self._layers))
