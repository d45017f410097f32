"""Records of the ops with a state. One method for each, named after the op, which is its kernel's name too.

Knows the arguments of `short_conv.py`. Next hop: `runs.py` for where kernels find sequences and records.
"""

from __future__ import annotations

from .lower_rows import RowLowering
from .memory import address
from .plan import Step

KERNELS = ("short_conv",)


class StateLowering(RowLowering):
    """Writes records for one shape. Their chunks are counted by runs, not by rows."""

    def _short_conv(self, step: Step) -> None:
        x, out, vectors = self._place(step.inputs[0]), self._place(step.out), self.m.weights.vectors
        bias = address(vectors[step.op.weights[1]]) if step.op.attributes["bias"] else 0
        groups = out.stride // 128
        some = -(-groups // (4 * self.m.threads))
        arguments = [x.address, x.stride, address(vectors[step.op.weights[0]]), bias, step.op.attributes["num_taps"]]
        arguments += [groups, some, self.m.state_offsets[step.op.attributes["state"]], out.address, out.stride]
        self._op(step.name, step, arguments, -(-groups // some), "runs")
