"""The ops whose state is a matrix for each head, in plain NumPy float32: the gated delta rule and Mamba 2.

Part of the oracle in `reference.py`, which applies sigmoid and softplus before: token by token, one head at a time, from zeros.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


def split_beta_alpha(inputs: Sequence[Floats], attributes: Mapping[str, Any]) -> tuple[Floats, Floats]:
    """-> beta and alpha f32[T, value heads], from two inputs or from one with r of each by turns."""
    if len(inputs) == 2:
        return inputs[0], inputs[1]
    tokens, heads = len(inputs[0]), attributes["num_value_heads"]
    parts = inputs[0].reshape(tokens, attributes["num_key_heads"], 2, -1)
    return parts[:, :, 0].reshape(tokens, heads), parts[:, :, 1].reshape(tokens, heads)


def gated_delta(qkv: Floats, beta: Floats, decay: Floats, attributes: Mapping[str, Any]) -> Floats:
    """The gated delta rule (Yang et al. 2024, arXiv:2412.06464): qkv f32[T, ...] -> f32[T, value heads * value_dim].

    beta f32[T, value heads]: how much of a correction is made; decay: what the state is multiplied by before.
    """
    key_heads, value_heads = attributes["num_key_heads"], attributes["num_value_heads"]
    key_dim, value_dim = attributes["key_dim"], attributes["value_dim"]
    tokens, keys = len(qkv), key_heads * key_dim
    q = _with_length_one(qkv[:, :keys].reshape(tokens, key_heads, key_dim)) / np.float32(np.sqrt(key_dim))
    k = _with_length_one(qkv[:, keys : 2 * keys].reshape(tokens, key_heads, key_dim))
    v = qkv[:, 2 * keys :].reshape(tokens, value_heads, value_dim)
    out: Floats = np.empty_like(v)
    for head in range(value_heads):
        shared = head // (value_heads // key_heads) if attributes["adjacent"] else head % key_heads
        state = np.zeros((key_dim, value_dim), np.float32)
        for t in range(tokens):
            state *= decay[t, head]
            known = k[t, shared] @ state
            state += np.outer(k[t, shared], beta[t, head] * (v[t, head] - known))
            out[t, head] = q[t, shared] @ state
    return out.reshape(tokens, value_heads * value_dim)


def mamba2(xbc: Floats, step: Floats, a: Floats, d: Floats, attributes: Mapping[str, Any]) -> Floats:
    """Mamba 2 (Dao, Gu 2024, arXiv:2405.21060): xbc f32[T, ...] -> f32[T, heads * head_dim].

    step f32[T, heads]: how long a token lasts. a, d f32[heads]: the states' decay by time, and how much of x goes past them.
    """
    heads, head_dim, size = attributes["num_heads"], attributes["head_dim"], attributes["state_size"]
    groups, tokens = attributes["num_groups"], len(xbc)
    x = xbc[:, : heads * head_dim].reshape(tokens, heads, head_dim)
    b, c = (part.reshape(tokens, groups, size) for part in np.split(xbc[:, heads * head_dim :], 2, axis=1))
    decay = np.exp(a * step)
    out: Floats = np.empty_like(x)
    for head in range(heads):
        group = head // (heads // groups)
        state = np.zeros((size, head_dim), np.float32)
        for t in range(tokens):
            state = decay[t, head] * state + np.outer(b[t, group], step[t, head] * x[t, head])
            out[t, head] = c[t, group] @ state + d[head] * x[t, head]
    return out.reshape(tokens, heads * head_dim)


def _with_length_one(x: Floats) -> Floats:
    """x / sqrt(x x + 1e-6), along the last axis."""
    out: Floats = x / np.sqrt(np.sum(np.square(x), axis=-1, keepdims=True) + np.float32(1e-6))
    return out
