"""The part of the vocabulary that has experts: methods of `ops.Builder`, kept apart for their length.

Meanings in NumPy: `reference.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .ops import Value

SCORES = ("softmax", "sigmoid", "softmax_of_used")
"""How a router's logits become scores: over all experts, each by itself, or over the chosen ones after the choice."""


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


class ExpertOps:
    """What Builder says of routing and of mixtures of experts."""

    if TYPE_CHECKING:

        def _append(
            self, name: str, inputs: Sequence[Value], width: int, weights: Sequence[str | None] = (), **attributes: Any
        ) -> Value: ...

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
