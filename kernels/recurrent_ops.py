"""The part of the vocabulary whose state is a matrix for each head: methods of `ops.Builder`, kept apart for their length.

Meanings in NumPy: `recurrent.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .ops import Value


class RecurrentOps:
    """What Builder says of the gated delta rule and of Mamba 2."""

    if TYPE_CHECKING:

        def _append(
            self, name: str, inputs: Sequence[Value], width: int, weights: Sequence[str | None] = (), **attributes: Any
        ) -> Value: ...

        def _state(self, width: int) -> int: ...

    def gated_delta(
        self,
        qkv: Value,
        beta: Value,
        alpha: Value | None,
        a: str,
        dt_bias: str,
        *,
        num_key_heads: int,
        num_value_heads: int,
        key_dim: int,
        value_dim: int,
        adjacent: bool,
    ) -> Value:
        """The gated delta rule (Yang et al. 2024, arXiv:2412.06464): each value head has a matrix S f32[key_dim, value_dim],
        which each token decays, corrects and reads.

        A row of qkv: queries of all key heads, keys of all key heads, values of all value heads. With q and k divided by their
        lengths sqrt(x x + 1e-6): S = exp(a softplus(alpha + dt_bias)) S, then S = S + k (sigmoid(beta) (v - k S)), then
        y = q S / sqrt(key_dim). alpha, beta: one number a value head; a, dt_bias: f32[num_value_heads].
        adjacent: the r value heads that share a key head lie side by side: h uses h // r; else h % num_key_heads.
        alpha None: `beta` has, for each key head, its r numbers beta, then its r numbers alpha.
        Its state: the matrices S, in blocks of 32 columns: [value heads, blocks, key_dim, 32].
        """
        assert num_value_heads % num_key_heads == 0, "each key head serves as many value heads"
        assert qkv.width == 2 * num_key_heads * key_dim + num_value_heads * value_dim
        state = self._state(num_value_heads * -(-value_dim // 32) * key_dim * 32)
        heads = {"num_key_heads": num_key_heads, "num_value_heads": num_value_heads}
        dims = {"key_dim": key_dim, "value_dim": value_dim, "adjacent": adjacent}
        inputs = (qkv, beta) if alpha is None else (qkv, beta, alpha)
        width = num_value_heads * value_dim
        return self._append("gated_delta", inputs, width, (a, dt_bias), state=state, **heads, **dims)

    def mamba2(
        self,
        xbc: Value,
        dt: Value,
        a: str,
        d: str,
        dt_bias: str,
        *,
        num_heads: int,
        head_dim: int,
        state_size: int,
        num_groups: int,
    ) -> Value:
        """The state-space dual layer of Mamba 2 (Dao, Gu 2024, arXiv:2405.21060): each head has a matrix S f32[state_size,
        head_dim], which each token decays, adds to and reads.

        A row of xbc: x of all heads, B of all groups, C of all groups; head h uses group h // (num_heads / num_groups).
        With s = softplus(dt + dt_bias): S = exp(a s) S + B (s x), then y = C S + d x. dt: one number a head;
        a, d, dt_bias: f32[num_heads].
        Its state: the matrices S, in blocks of 32 columns: [heads, blocks, state_size, 32].
        """
        assert num_heads % num_groups == 0, "each group serves as many heads"
        assert xbc.width == num_heads * head_dim + 2 * num_groups * state_size
        state = self._state(num_heads * -(-head_dim // 32) * state_size * 32)
        heads = {"num_heads": num_heads, "head_dim": head_dim, "state_size": state_size, "num_groups": num_groups}
        return self._append("mamba2", (xbc, dt), num_heads * head_dim, (a, d, dt_bias), state=state, **heads)
