"""Records of the ops with a state. One method for each, named after the op, which is its kernel's name too.

Knows the arguments of `short_conv.py`, `gated_delta.py` and `mamba2.py`. Next hop: `runs.py` for where kernels find sequences
and records.
"""

from __future__ import annotations

from .lower_rows import RowLowering
from .memory import address
from .plan import Step

KERNELS = ("short_conv", "gated_delta", "mamba2")


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

    def _heads(self, step: Step, arguments: list[int], heads: int, head_dim: int) -> None:
        """An op whose state is a matrix for each head: a chunk has 32 columns of one, for one run."""
        arguments = [*arguments, self.m.state_offsets[step.op.attributes["state"]], *self._emit(step)]
        self._op(step.name, step, arguments, heads * -(-head_dim // 32), "runs")

    def _vectors(self, step: Step) -> list[int]:
        return [address(self.m.weights.vectors[name]) for name in step.op.weights]

    def _gated_delta(self, step: Step) -> None:
        qkv, beta, *rest = (self._place(b) for b in step.inputs)
        a = step.op.attributes
        key_heads, heads = a["num_key_heads"], a["num_value_heads"]
        if rest:  # of all heads in a row
            alpha, alpha_at, together, apart = rest[0], rest[0].address, heads, 0
        else:  # of some heads beta, then alpha
            together = heads // key_heads
            alpha, alpha_at, apart = beta, beta.address + 4 * together, 2 * together
        arguments = [qkv.address, qkv.stride, beta.address, alpha_at, beta.stride, alpha.stride, together, apart]
        arguments += [*self._vectors(step), key_heads, heads, a["key_dim"], a["value_dim"], int(a["adjacent"])]
        self._heads(step, arguments, heads, a["value_dim"])

    def _mamba2(self, step: Step) -> None:
        xbc, dt = (self._place(b) for b in step.inputs)
        a = step.op.attributes
        arguments = [xbc.address, xbc.stride, dt.address, dt.stride, *self._vectors(step)]
        arguments += [a["num_heads"], a["head_dim"], a["state_size"], a["num_groups"]]
        self._heads(step, arguments, a["num_heads"], a["head_dim"])
