"""Every op in plain NumPy float32, and a walk over a Program: the oracle that the fast backends are tested against.

One function per op, with the op's name. One sequence from position 0, no cache, nothing quantised: slow and meant to be
read. Knows no architecture and no file: weights come as a mapping from name to array.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from . import recurrent
from .expert_ops import Routing
from .ops import CacheLayer, Op, Program, Rope
from .rope import cos_sin

Floats = NDArray[np.float32]
Integers = NDArray[np.integer]


def run(
    program: Program,
    weights: Mapping[str, Floats],
    token_ids: Sequence[int] | Integers,
    logit_rows: Sequence[int] | Integers | None = None,
    token_types: Sequence[int] | Integers | None = None,
    adapter_scales: Sequence[float] = (),
) -> Floats:
    """Compute the logits of a sequence, or what else is the program's output.

    Args:
        weights: name -> f32 array, for every weight that the program names. Each is looked up when an op needs it,
            so a mapping may make them one by one.
        token_ids: the T tokens of one sequence; token t is at position t.
        logit_rows: the N tokens whose logits are wanted, ascending; None for all.
        token_types: which part of its text each token is of; None: all are of the first.
        adapter_scales: how much of each adapter the sequence gets.

    Returns f32[N, V].
    """
    ids = np.asarray(token_ids, np.int64)
    types = np.zeros(len(ids), np.int64) if token_types is None else np.asarray(token_types, np.int64)
    indices = {"positions": np.arange(len(ids)), "token_types": types}
    rows = np.arange(len(ids)) if logit_rows is None else np.asarray(logit_rows, np.int64)
    last_use = {value.index: i for i, op in enumerate(program.ops) for value in op.inputs}
    values: dict[int, Floats] = {}
    for i, op in enumerate(program.ops):
        inputs = [values[value.index] for value in op.inputs]
        named = [weights[name] for name in op.weights]
        if op.name == "embed" and op.attributes["by"] != "token_ids":
            values[op.output.index] = embed(indices[op.attributes["by"]], named[0], op.attributes["scale"])
        elif op.name == "adapter_scale":
            scales = np.full(len(inputs[0]), adapter_scales[op.attributes["adapter"]], np.float32)
            values[op.output.index] = adapter_scale(inputs[0], scales, op.attributes["factor"])
        else:
            values[op.output.index] = _apply(op, inputs, named, program, ids, rows)
        for value in op.inputs:  # a long prompt's values do not all fit into memory
            if last_use[value.index] == i:
                values.pop(value.index, None)
    return values[program.output.index]


def _apply(op: Op, x: list[Floats], w: list[Floats], program: Program, ids: Integers, rows: Integers) -> Floats:
    """Call the function of one op with its inputs x, its weights w and its attributes."""
    a = op.attributes
    match op.name:
        case "embed":
            return embed(ids, w[0], a["scale"])
        case "rms_norm":
            return rms_norm(x[0], w[0] if w else np.ones(1, np.float32), a["epsilon"], a["groups"])
        case "layer_norm":
            return layer_norm(x[0], w[0], w[1] if a["bias"] else None, a["epsilon"], a["groups"])
        case "linear":
            return linear(x[0], *_part_of([np.atleast_2d(w[0]), *w[1:]], a["start"], op.output.width))
        case "head_linear":
            return head_linear(x[0], w[0])
        case "join_heads":
            return join_heads(x, a["num_heads"], a["parts"])
        case "rope":
            factors, last = w[0] if w else None, a["last_position"]
            return rope(x[0], a["num_heads"], a["rope"], np.arange(len(ids)), factors, last)
        case "attention":
            layer, sink_q = program.cache_layers[a["layer"]], x[3] if len(x) > 3 else None
            scale, cap, sinks = a["scale"], a["softcap"], w[0] if w else None
            return attention(x[0], x[1], x[2], a["num_heads"], layer, scale, cap, sinks=sinks, sink_q=sink_q)
        case "short_conv":
            return short_conv(x[0], w[0], w[1] if a["bias"] else None)
        case "gated_delta":
            beta, alpha = recurrent.split_beta_alpha(x[1:], a)
            return recurrent.gated_delta(x[0], sigmoid(beta), np.exp(w[0] * softplus(alpha + w[1])), a)
        case "mamba2":
            return recurrent.mamba2(x[0], softplus(x[1] + w[2]), w[0].ravel(), w[1].ravel(), a)
        case "gated":
            return gated(x[0], x[1], a["activation"])
        case "activate":
            return activate(x[0], a["activation"])
        case "multiply":
            return multiply(x[0], x[1])
        case "scale":
            return multiply(x[0], np.float32(a["factor"]) * (w[0].reshape(1, 1) if w else np.ones((1, 1), np.float32)))
        case "softcap":
            return softcap(x[0], a["cap"])
        case "columns":
            return columns(x[0], a["start"], op.output.width // a["parts"], a["parts"])
        case "route":
            return route(x[0], a["routing"], w[0] if a["bias"] else None, w[-1] if a["scales"] else None)
        case "experts":
            return experts(x[0], x[1], w[: a["matrices"]], w[a["matrices"] :], a["ffn"], a["activation"])
        case "add":
            return add(x[0], x[1])
        case "logit_rows":
            return logit_rows(x[0], rows)
    raise AssertionError(f"the op {op.name} has no meaning here")


def _part_of(weights: list[Floats], start: int, count: int) -> list[Floats]:
    """The rows of a matrix and the numbers of its bias that an op uses; mostly all of them, and the very arrays."""
    return [w if len(w) == count else w[start : start + count] for w in weights]


def embed(rows: Integers, table: Floats, scale: float) -> Floats:
    """scale * table[rows]: f32[T, E] from table f32[V, E]."""
    out: Floats = table[rows] * np.float32(scale)
    return out


def rms_norm(x: Floats, weight: Floats, epsilon: float, groups: int = 1) -> Floats:
    """Each of `groups` parts p of a row of x f32[T, W] -> p / sqrt(mean(p^2) + epsilon) * weight.

    weight: f32[W / groups] for all parts, or f32[groups, W / groups].
    """
    parts = x.reshape(len(x), groups, x.shape[1] // groups)
    mean = np.mean(np.square(parts), axis=-1, keepdims=True, dtype=np.float32)
    out: Floats = parts / np.sqrt(mean + np.float32(epsilon)) * weight
    return out.reshape(x.shape)


def layer_norm(x: Floats, weight: Floats, bias: Floats | None, epsilon: float, groups: int = 1) -> Floats:
    """Each of `groups` parts p of a row of x f32[T, W] -> (p - mean) / sqrt(variance + epsilon) * weight + bias.

    weight and bias: f32[W / groups] or f32[groups, W / groups].
    """
    parts = x.reshape(len(x), groups, x.shape[1] // groups)
    parts = parts - np.mean(parts, axis=-1, keepdims=True, dtype=np.float32)
    variance = np.mean(np.square(parts), axis=-1, keepdims=True, dtype=np.float32)
    out: Floats = parts / np.sqrt(variance + np.float32(epsilon)) * weight
    return (out if bias is None else add(out, bias)).reshape(x.shape)


def linear(x: Floats, weight: Floats, bias: Floats | None = None) -> Floats:
    """x f32[T, K] @ weight f32[N, K].T + bias f32[N]."""
    out: Floats = x @ weight.T
    return out if bias is None else add(out, bias)


def head_linear(x: Floats, weight: Floats) -> Floats:
    """Head h of x f32[T, H * K] @ weight f32[H, N, K][h].T: f32[T, H * N]."""
    heads = x.reshape(len(x), len(weight), weight.shape[2])
    out = np.stack([heads[:, h] @ weight[h].T for h in range(len(weight))], axis=1)
    return out.reshape(len(x), -1)


def join_heads(x: Sequence[Floats], num_heads: int, parts: Sequence[tuple[int, int, int]]) -> Floats:
    """Columns of each value's heads side by side, head by head; parts: of each value its heads, first column and columns."""
    some = []
    for value, (heads, start, width) in zip(x, parts, strict=True):
        columns = value.reshape(len(value), heads, -1)[:, :, start : start + width]
        some.append(np.broadcast_to(columns, (len(value), num_heads, width)))
    return np.concatenate(some, axis=2).reshape(len(x[0]), -1)


def rope(
    x: Floats,
    num_heads: int,
    rope: Rope,
    positions: Integers,
    factors: Floats | None = None,
    last_position: int | None = None,
) -> Floats:
    """Turn the pairs of each head of x f32[T, H * D] by the angles of positions i64[T], those of last_position at most."""
    out: Floats = x.reshape(len(x), num_heads, x.shape[1] // num_heads).copy()
    if rope.pairs == "adjacent":
        left, right = out[..., 0 : rope.dim : 2], out[..., 1 : rope.dim : 2]
    else:
        assert rope.pairs == "halves", rope.pairs
        left, right = out[..., : rope.dim // 2], out[..., rope.dim // 2 : rope.dim]
    cos, sin = (table[:, None, :] for table in cos_sin(rope, positions.astype(np.int64), factors, last_position))
    left[:], right[:] = left * cos - right * sin, right * cos + left * sin  # both right sides before either is written
    return out.reshape(x.shape)


def attention(
    q: Floats,
    k: Floats,
    v: Floats,
    num_heads: int,
    layer: CacheLayer,
    scale: float,
    softcap: float = 0.0,
    *,
    sinks: Floats | None = None,
    sink_q: Floats | None = None,
) -> Floats:
    """softmax(scale q k^T) v, head by head, over the positions in reach: q f32[T, H * D], k f32[T, G * D], v f32[T, G * D'].

    sinks: f32[H], a score of a token without a value. sink_q: f32[T, H * D], for sink tokens that have left the window.
    """
    tokens = len(q)
    q = q.reshape(tokens, num_heads, layer.head_dim)
    sink_q = q if sink_q is None else sink_q.reshape(q.shape)
    k = k.reshape(tokens, layer.num_kv_heads, layer.head_dim)
    v = v.reshape(tokens, layer.num_kv_heads, layer.dims[1])
    distance = np.arange(tokens)[:, None] - np.arange(tokens)[None, :]
    behind = np.abs(distance) if not layer.is_causal else distance
    in_window = (behind >= 0) & (behind < (layer.window or tokens + 1))
    is_sink = (distance >= 0) & ~in_window & (np.arange(tokens) < layer.num_sink_tokens)[None, :]
    out: Floats = np.empty((tokens, num_heads, layer.dims[1]), np.float32)
    for head in range(num_heads):
        group = head // (num_heads // layer.num_kv_heads)
        scores = np.where(is_sink, sink_q[:, head] @ k[:, group].T, q[:, head] @ k[:, group].T) * np.float32(scale)
        if softcap:
            scores = np.float32(softcap) * np.tanh(scores / np.float32(softcap))
        scores = np.where(in_window | is_sink, scores, np.float32(-np.inf))
        if sinks is not None:
            scores = np.concatenate([scores, np.full((tokens, 1), sinks[head], np.float32)], axis=1)
        out[:, head] = softmax(scores)[:, :tokens] @ v[:, group]
    return out.reshape(tokens, num_heads * layer.dims[1])


def short_conv(x: Floats, weight: Floats, bias: Floats | None = None) -> Floats:
    """Each channel's last inputs, weighted and summed: x f32[T, W], weight f32[W, taps] (the last tap meets the token itself)."""
    taps = weight.shape[1]
    before = np.concatenate([np.zeros((taps - 1, x.shape[1]), np.float32), x])
    out: Floats = np.zeros_like(x)
    for j in range(taps):
        out += weight[:, j] * before[j : j + len(x)]
    return out if bias is None else add(out, bias)


def softmax(scores: Floats) -> Floats:
    """Exponentials of each row, scaled to the sum 1; -inf gives 0."""
    weights: Floats = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    return weights


def activate(x: Floats, activation: str) -> Floats:
    """One of ops.ACTIVATIONS, element by element."""
    functions = {"silu": silu, "gelu": gelu, "gelu_erf": gelu_erf, "sigmoid": sigmoid, "softplus": softplus}
    return np.maximum(x, np.float32(0)) if activation == "relu" else functions[activation](x)


def multiply(x: Floats, y: Floats) -> Floats:
    """x f32[T, W] * y f32[T, W] or f32[T, 1]."""
    out: Floats = x * y
    return out


def columns(x: Floats, start: int, width: int, parts: int = 1) -> Floats:
    """Columns start to start + width of each of `parts` equal parts of a row of x f32[T, W]."""
    return x.reshape(len(x), parts, -1)[:, :, start : start + width].reshape(len(x), parts * width)


def softcap(x: Floats, cap: float) -> Floats:
    """cap * tanh(x / cap)."""
    out: Floats = np.float32(cap) * np.tanh(x / np.float32(cap))
    return out


def gated(gate: Floats, up: Floats, activation: str) -> Floats:
    """activation(gate) * up, element by element; one of ops.GATED_ACTIVATIONS."""
    if activation == "swiglu_clamped":
        gate, up = np.minimum(gate, np.float32(7)), np.clip(up, np.float32(-7), np.float32(7))
        return multiply(multiply(gate, sigmoid(np.float32(1.702) * gate)), up + np.float32(1))
    return multiply(activate(gate, activation), up)


def gelu_erf(x: Floats) -> Floats:
    """x times the normal distribution function (Hendrycks, Gimpel 2016)."""
    halves = [0.5 * (1.0 + math.erf(v / math.sqrt(2.0))) for v in x.ravel().tolist()]
    out: Floats = x * np.array(halves, np.float32).reshape(x.shape)
    return out


def sigmoid(x: Floats) -> Floats:
    """1 / (1 + exp(-x))."""
    with np.errstate(over="ignore"):  # exp(-x) = inf rightly gives 0
        out: Floats = np.float32(1) / (1 + np.exp(-x))
    return out


def softplus(x: Floats) -> Floats:
    """log(1 + exp(x)), without overflow."""
    out: Floats = np.maximum(x, np.float32(0)) + np.log1p(np.exp(-np.abs(x)))
    return out


def silu(x: Floats) -> Floats:
    """x / (1 + exp(-x))."""
    with np.errstate(over="ignore"):  # exp(-x) = inf rightly gives 0
        out: Floats = x / (1 + np.exp(-x))
    return out


def gelu(x: Floats) -> Floats:
    """x times the normal distribution function, in the tanh form (Hendrycks, Gimpel 2016)."""
    with np.errstate(over="ignore"):  # tanh(inf) is 1
        inner = np.float32(np.sqrt(2 / np.pi)) * (x + np.float32(0.044715) * x**3)
    out: Floats = np.float32(0.5) * x * (1 + np.tanh(inner))
    return out


def route(logits: Floats, routing: Routing, bias: Floats | None = None, scales: Floats | None = None) -> Floats:
    """Experts f32[T, U] and their weights f32[T, U], side by side, from logits f32[T, E], bias and scales f32[E]."""
    scores = logits
    if routing.scores != "softmax_of_used":
        scores = softmax(logits) if routing.scores == "softmax" else sigmoid(logits)
    ranking = scores if bias is None else add(scores, bias)
    if routing.num_groups > 1:
        parts = ranking.reshape(len(ranking), routing.num_groups, -1)
        best = -np.sort(-parts, axis=-1)[..., : routing.group_best].sum(axis=-1)
        left_out = np.argsort(-best, axis=-1, kind="stable")[:, routing.num_groups_used :]
        parts = parts.copy()
        np.put_along_axis(parts, left_out[..., None], -np.inf, axis=1)
        ranking = parts.reshape(scores.shape)
    chosen = np.argsort(-ranking, axis=-1, kind="stable")[:, : routing.num_used]
    weights: Floats = np.take_along_axis(scores, chosen, axis=-1)
    if routing.scores == "softmax_of_used":
        weights = softmax(weights)
    if routing.normalised:
        weights = weights / np.maximum(weights.sum(axis=-1, keepdims=True), np.float32(2**-14))
    weights = weights * np.float32(routing.scale)
    weights = weights if scales is None else multiply(weights, scales[chosen])
    return np.concatenate([chosen.astype(np.float32), weights], axis=1)


def experts(
    x: Floats, routed: Floats, matrices: Sequence[Floats], biases: Sequence[Floats], ffn: int, activation: str
) -> Floats:
    """Sum over a token's experts, best first. matrices: gate, up f32[E, F, W] (or both f32[E, 2 F, W]), down f32[E, W, F]."""
    chosen, weights = np.split(routed, 2, axis=1)
    gate, up = (matrices[0], matrices[1]) if len(matrices) == 3 else (matrices[0][:, :ffn], matrices[0][:, ffn:])
    out: Floats = np.zeros_like(x)
    for e in np.unique(chosen).astype(int):
        tokens, rank = np.nonzero(chosen == e)
        of = [bias[e] for bias in biases] or [None] * 3
        y = gated(linear(x[tokens], gate[e], of[0]), linear(x[tokens], up[e], of[1]), activation)
        out[tokens] += weights[tokens, rank, None] * linear(y, matrices[-1][e], of[2])
    return out


def add(x: Floats, y: Floats) -> Floats:
    """x + y."""
    out: Floats = x + y
    return out


def adapter_scale(x: Floats, scales: Floats, factor: float) -> Floats:
    """x f32[T, R] * factor * scales f32[T]; 0 where a scale is 0."""
    out: Floats = np.where(scales[:, None] == 0, np.float32(0), x * (np.float32(factor) * scales[:, None]))
    return out


def logit_rows(x: Floats, rows: Integers) -> Floats:
    """The rows of x f32[T, W] whose logits are wanted, f32[N, W]."""
    out: Floats = x[rows]
    return out
