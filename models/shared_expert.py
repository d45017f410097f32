"""The expert that every token uses beside the chosen ones (Dai et al. 2024, arXiv:2401.06066): what families that have one share.

Describes its ops; knows no numbers and no backend. Next hop: `blocks.py`.
"""

from __future__ import annotations

from ..kernels.ops import Value
from .blocks import Blocks


def shared_expert(n: Blocks, x: Value, i: int, ffn: int, *, has_gate: bool = False) -> Value:
    """down(silu(gate(x)) * up(x)) of layer i, `ffn` wide; has_gate: times sigmoid of one more row's product with x."""
    layer = f"blk.{i}"
    gate, up = n.linear(x, f"{layer}.ffn_gate_shexp", ffn), n.linear(x, f"{layer}.ffn_up_shexp", ffn)
    y = n.linear(n.b.gated(gate, up, "silu"), f"{layer}.ffn_down_shexp", n.hidden)
    if not has_gate:
        return y
    return n.b.multiply(y, n.b.activate(n.linear(x, f"{layer}.ffn_gate_inp_shexp", 1), "sigmoid"))
