"""Behind the last op where tokens meet, only the rows whose logits are wanted: rewrite a program so.

A prompt needs the logits of its last token alone, and nothing after the last attention looks at other tokens. So that each
architecture need not say it, the ops that carry a value across that point get it through `logit_rows`. Knows no backend.
Next hop: `ops.py` for what the ops mean.
"""

from __future__ import annotations

from dataclasses import replace

from .ops import Op, Program, Value


def keep_wanted_rows(program: Program) -> Program:
    """Let the ops behind the last that mixes tokens work on the wanted rows only. Their numbers stay the same, bit for bit."""
    ops = program.ops
    start = 1 + max(i for i, op in enumerate(ops) if mixes_tokens(op))
    made = {op.output.index for op in ops[:start]}
    crossing = dict.fromkeys(value for op in ops[start:] for value in op.inputs if value.index in made)
    unused = 1 + max(op.output.index for op in ops)
    wanted = {value: Value(unused + n, value.width) for n, value in enumerate(crossing)}
    cuts = [Op("logit_rows", (value,), output) for value, output in wanted.items()]
    rest = [replace(op, inputs=tuple(wanted.get(value, value) for value in op.inputs)) for op in ops[start:]]
    return replace(program, ops=(*ops[:start], *cuts, *rest))


def mixes_tokens(op: Op) -> bool:
    """Whether the op reads other tokens than its own: what keeps something of a sequence."""
    return "layer" in op.attributes or "state" in op.attributes
