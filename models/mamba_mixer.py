"""The layer of Mamba 2 (Dao, Gu 2024, arXiv:2405.21060), which mamba2 files have alone and others beside attention.

Describes its ops; knows no numbers and no backend. Next hop: `blocks.py`.
"""

from __future__ import annotations

from ..errors import ModelFileError
from ..kernels.ops import Value
from .blocks import Blocks


def mamba_mixer(n: Blocks, x: Value, i: int) -> Value:
    """Layer i: a short convolution, the state-space layer, a gate, a norm of each group.

    The rows of its first matrix hold the gate, then x, B and C, then how long a token lasts.
    """
    layer, h, w, b = f"blk.{i}", n.h, n.w, n.b
    inner, size, heads = (h.integer(f"ssm.{key}") for key in ("inner_size", "state_size", "time_step_rank"))
    groups, taps = h.integer("ssm.group_count", 1), h.integer("ssm.conv_kernel", low=2)
    if inner % heads or heads % groups:
        raise ModelFileError(
            f"{h.architecture}.ssm.time_step_rank is {heads}, but must be a multiple of ssm.group_count, {groups}, and divide"
            f" ssm.inner_size, {inner}"
        )
    width = inner + 2 * groups * size
    rows = inner + width + heads
    z = n.linear(x, f"{layer}.ssm_in", inner, 0, rows)
    xbc = n.linear(x, f"{layer}.ssm_in", width, inner, rows)
    dt = n.linear(x, f"{layer}.ssm_in", heads, inner + width, rows)
    weight, bias = w.require(f"{layer}.ssm_conv1d.weight", width, taps), w.bias(f"{layer}.ssm_conv1d", width)
    y = b.mamba2(
        b.activate(b.short_conv(xbc, weight, taps, bias), "silu"),
        dt,
        w.require(f"{layer}.ssm_a", heads, 1),
        w.require(f"{layer}.ssm_d", heads, 1),
        w.require(f"{layer}.ssm_dt.bias", heads),
        num_heads=heads,
        head_dim=inner // heads,
        state_size=size,
        num_groups=groups,
    )
    norm = w.require(f"{layer}.ssm_norm.weight", groups, inner // groups)
    y = b.rms_norm(b.gated(z, y, "silu"), norm, n.epsilon, groups)
    return n.linear(y, f"{layer}.ssm_out", n.hidden)
