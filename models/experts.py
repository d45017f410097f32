"""A mixture of experts in place of a feed-forward network: what the families that have one share.

Reads the keys that say how many experts there are and how a token finds its own; writes router and experts. What a family
adds (a shared expert, other activations) stays in its file. Next hop: `route` and `experts` in `kernels/ops.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import ModelFileError, UnsupportedError
from ..kernels.expert_ops import Routing
from ..kernels.ops import Builder, Value
from .hparams import HParams
from .weights import Weights

GATING = {1: "softmax", 2: "sigmoid", 3: "softmax_of_used"}
"""GGUF's numbers for what a router's logits become."""


@dataclass(frozen=True, slots=True)
class Mixture:
    """How tokens find experts, and how wide an expert is."""

    routing: Routing
    ffn: int


def read_mixture(
    h: HParams, ffn: int | None = None, scores: str = "softmax", normalised: bool = False, group_best: int = 2
) -> Mixture:
    """Read the mixture of a file; ModelFileError or UnsupportedError name the key at fault.

    ffn: an expert's width if the file does not say; None: it must. scores, normalised: what the family does where the file is
    silent. group_best: see Routing.
    """
    num_experts = h.integer("expert_count", high=1 << 16)
    num_used = h.integer("expert_used_count", high=num_experts)
    gating = h.integer("expert_gating_func", 0, low=0)
    if gating and gating not in GATING:
        raise UnsupportedError(f"{h.architecture}.expert_gating_func {gating} is not supported; edgellm knows 1 to 3")
    ffn = h.integer("expert_feed_forward_length", ffn)
    if ffn % 8:
        raise UnsupportedError(f"experts of a width that is no multiple of 8 are not supported, but they have {ffn}")
    groups = h.integer("expert_group_count", 1, low=0) or 1
    groups_used = h.integer("expert_group_used_count", groups, low=0) or groups
    if num_experts % groups or groups_used > groups or num_used > num_experts // groups * groups_used:
        raise ModelFileError(
            f"{h.architecture}.expert_group_count is {groups}, of which {groups_used} are used: that does not go together"
            f" with {num_experts} experts, of which {num_used} are used"
        )
    normalised = h.boolean("expert_weights_norm", normalised)
    scale = h.number_or_zero("expert_weights_scale") or 1.0
    scores = GATING[gating] if gating else scores
    return Mixture(Routing(num_experts, num_used, scores, normalised, scale, groups, groups_used, group_best), ffn)


def write_experts(
    b: Builder,
    w: Weights,
    layer: str,
    x: Value,
    mixture: Mixture,
    activation: str = "silu",
    biased: bool = False,
    router_x: Value | None = None,
) -> Value:
    """Router and experts of `layer` ("blk.3"), with gate and up in one tensor or in two.

    biased: the router and the experts have biases, and they must be there. A bias of the choice alone is used if it is there,
    as are scales of the weights. router_x: what the router looks at, x if None.
    """
    routing, ffn, hidden = mixture.routing, mixture.ffn, x.width
    count = routing.num_experts
    bias = w.require(f"{layer}.ffn_gate_inp.bias", count) if biased else None
    logits = b.linear(router_x or x, w.require(f"{layer}.ffn_gate_inp.weight", count, hidden), count, bias)
    choice_bias, scales = (w.optional(f"{layer}.{name}", count) for name in ("exp_probs_b.bias", "ffn_down_exps.scale"))
    routed = b.route(logits, routing, choice_bias, scales)
    down = w.require(f"{layer}.ffn_down_exps.weight", count, hidden, ffn)
    both = None if biased else w.optional(f"{layer}.ffn_gate_up_exps.weight", count, 2 * ffn, hidden)
    if both is not None:
        return b.experts(x, routed, routing, ffn, both, None, down, activation)
    gate, up = (w.require(f"{layer}.ffn_{name}_exps.weight", count, ffn, hidden) for name in ("gate", "up"))
    biases = None
    if biased:
        sizes = {"gate": ffn, "up": ffn, "down": hidden}
        g, u, d = (w.require(f"{layer}.ffn_{name}_exps.bias", count, size) for name, size in sizes.items())
        biases = (g, u, d)
    return b.experts(x, routed, routing, ffn, gate, up, down, activation, biases)


def write_shared_expert(
    b: Builder, w: Weights, layer: str, x: Value, ffn: int, activation: str = "silu", is_gated: bool = False
) -> Value:
    """The expert that every token goes to. is_gated: times the sigmoid of one number of the token's own."""
    hidden = x.width
    gate, up = (b.linear(x, w.require(f"{layer}.ffn_{name}_shexp.weight", ffn, hidden), ffn) for name in ("gate", "up"))
    down = w.require(f"{layer}.ffn_down_shexp.weight", hidden, ffn)
    y = b.linear(b.gated(gate, up, activation), down, hidden)
    if not is_gated:
        return y
    name = f"{layer}.ffn_gate_inp_shexp.weight"
    shape = (1, hidden) if w.rank(name) == 2 else (hidden,)  # converters have written both
    return b.multiply(y, b.activate(b.linear(x, w.require(name, *shape), 1), "sigmoid"))
