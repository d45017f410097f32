"""How positions turn heads: what a file's metadata say of the rotation and its scaling for long contexts.

Next hop: `kernels/rope.py` for the angles.
"""

from __future__ import annotations

import math

from ..errors import UnsupportedError
from ..kernels.ops import Rope
from .hparams import HParams, show


def read_rope(h: HParams, head_dim: int, pairs: str, factors: str | None = None) -> Rope:
    """Read a rotation; `HParams.rope` is the way to it. Raises ModelFileError or UnsupportedError naming the key."""
    dim = h.integer("rope.dimension_count", head_dim)
    if dim > head_dim or dim % 2:
        raise h.bad("rope.dimension_count", dim, f"even and at most the head's {head_dim}")
    factor = h.number("rope.scaling.factor", h.number("rope.scale_linear", 1.0))
    scaling = h.text("rope.scaling.type", "linear" if factor != 1.0 else "none")
    base = h.number("rope.freq_base", 10000.0, above=1.0)
    attn_factor = h.number("rope.scaling.attn_factor", 1.0)
    if scaling in ("none", "linear") or (scaling == "longrope" and factors is not None):
        factor = factor if scaling == "linear" else 1.0
        scaling = scaling if scaling == "linear" else "none"
        return Rope(dim, base, pairs, scaling, factor, yarn_attn_factor=attn_factor, factors=factors)
    if scaling != "yarn":
        raise UnsupportedError(
            f"rope scaling of the type {show(scaling)} ({h.architecture}.rope.scaling.type) is not supported;"
            " edgellm knows none, linear and yarn"
        )
    # What the magnitude is divided by again (DeepSeek's mscale_all_dim; mscale itself is 1 in every file that says so).
    attn_factor /= 1.0 + 0.1 * h.number_or_zero("rope.scaling.yarn_log_multiplier") * math.log(max(1.0, factor))
    return Rope(
        dim=dim,
        base=base,
        pairs=pairs,
        scaling="yarn",
        factor=factor,
        original_context=h.integer("rope.scaling.original_context_length", h.get("context_length")),
        yarn_ext_factor=h.number("rope.scaling.yarn_ext_factor", 1.0),
        yarn_attn_factor=attn_factor,
        yarn_beta_fast=h.number("rope.scaling.yarn_beta_fast", 32.0),
        yarn_beta_slow=h.number("rope.scaling.yarn_beta_slow", 1.0),
        factors=factors,
    )
