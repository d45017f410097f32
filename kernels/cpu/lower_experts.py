"""Records of a mixture of experts: what `route` and `experts` become on the tape.

One token: choice, all gates and ups, activation, all downs, sum: a stage each. More tokens: their rows are sorted by expert
first. Which experts are used is known only while the tape runs, so there are chunks for as many as there may be, and those
of experts that nobody chose end at once. Knows the arguments of the kernels in `experts.py`.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from ..ops import Op, Program
from . import slots
from .lower_rows import ACTIVATIONS, RowLowering, float_word
from .machine import ExpertTable
from .memory import address, aligned
from .panels import ROW_GROUPS, panel_bytes, panel_layout
from .plan import Buffer, Step
from .weights import Matrix

KERNELS = ("route", "sort_rows", "gather_rows", "matmul_experts", "gated_experts", "sum_experts")
PANEL_FROM = 8
"""Rows of activations of one expert from which unpacking its weights pays."""
_TABLE = -(1 << 20)  # the table of rows as a resource of the tape, beside buffers and caches
_CHUNKS_OF_A_THREAD = 8
_LEAST_CHUNK_BYTES, _MOST_CHUNK_BYTES = 16 << 10, 128 << 10
_PREFILL_GROUPS = 16
_BLOCK_BYTES = 1 << 20
_SMALL_BATCH = 15  # rows of activations that are multiplied without panels, at most
_GATED = ACTIVATIONS | {"swiglu_clamped": slots.SWIGLU_CLAMPED}
_SCORES = {"softmax": slots.SOFTMAX_SCORES, "sigmoid": slots.SIGMOID_SCORES, "softmax_of_used": slots.SOFTMAX_OF_USED}


def make_table(program: Program, tokens: int) -> ExpertTable | None:
    """Room for the rows of so many tokens, if the program has experts."""
    routings = [op.attributes["routing"] for op in program.ops if op.name == "experts"]
    if not routings:
        return None
    experts, used = max(r.num_experts for r in routings), max(r.num_used for r in routings)
    words = [slots.ROW_WORDS * (experts + 1), slots.ROW_WORDS * tokens * used, tokens * used, experts]
    return ExpertTable(*(aligned(8 * n).view(np.int64) for n in words))


def kernel_names(ops: Iterable[Op]) -> list[str]:
    """Names of the kernels that these ops need, if there are experts among them."""
    return list(KERNELS) if any(op.name == "experts" for op in ops) else []


def scratch_bytes(program: Program) -> int:
    """Scratch that choosing takes."""
    widths = [op.attributes["routing"].num_experts for op in program.ops if op.name == "route"]
    return 4 * (-(-max(widths, default=0) // 32) * 128 + 128)


class ExpertLowering(RowLowering):
    """Writes the records of mixtures."""

    bounds: list[NDArray[np.int64]]

    @property
    def _one_token(self) -> bool:
        return self.tile == self.m.parts

    def _route(self, step: Step) -> None:
        logits, out, routing = self._place(step.inputs[0]), self._place(step.out), step.op.attributes["routing"]
        vectors, has = [address(self.m.weights.vectors[name]) for name in step.op.weights], step.op.attributes
        bias, scales = vectors[0] if has["bias"] else 0, vectors[-1] if has["scales"] else 0
        arguments = [logits.address, logits.stride, routing.num_experts, routing.num_used, out.address, out.stride]
        arguments += [_SCORES[routing.scores], int(routing.normalised), float_word(routing.scale), bias]
        self._op("route", step, [*arguments, routing.num_groups, routing.num_groups_used, routing.group_best, scales])

    def _experts(self, step: Step) -> None:
        names, biases = self._names(step.op)
        sorted_x, gate, up, gated, down = step.scratch
        source = step.inputs[0]
        if not self._one_token:
            self._sort(step)
            source = sorted_x
        ffn = step.op.attributes["ffn"]
        fused = int(names[0] == names[1])
        self._matrix(step, names[0], 0, ffn, (source, gate))
        self._matrix(step, names[1], fused * ffn, ffn, (source, up))
        self._between(step, biases)
        self._matrix(step, names[2], 0, step.out.width, (gated, down))
        self._sum(step, biases)

    def _names(self, op: Op) -> tuple[list[str], list[int]]:
        """-> gate, up and down, and the addresses of their biases, 0 without."""
        matrices, rest = op.weights[: op.attributes["matrices"]], op.weights[op.attributes["matrices"] :]
        biases = [address(self.m.weights.vectors[name]) for name in rest] or [0, 0, 0]
        return [matrices[0], matrices[-2], matrices[-1]], biases

    def _table(self, part: str) -> int:
        """Address of a part of the table; 0 where one token has none."""
        assert self.m.expert_table is not None
        return 0 if self._one_token else address(getattr(self.m.expert_table, part))

    def _reads(self, step: Step, *buffers: int) -> list[int]:
        """What a record reads, and what says whose rows are whose."""
        return [*buffers, step.inputs[1].index if self._one_token else _TABLE]

    def _sort(self, step: Step) -> None:
        x, routed, to = self._place(step.inputs[0]), self._place(step.inputs[1]), self._place(step.scratch[0])
        routing = step.op.attributes["routing"]
        tables = [self._table(part) for part in ("slots", "rows", "places", "counts")]
        counted = slots.TOKENS if self.rows == "tokens" else slots.LOGIT_TOKENS
        arguments = [routed.address, routed.stride, routing.num_used, routing.num_experts, counted, *tables]
        self.writer.op("sort_rows", arguments, 1, None, [step.inputs[1].index], [_TABLE])
        groups = x.stride if step.inputs[0].quantised else 0
        arguments = [x.address, groups, self.tile, to.address, tables[1], self.m.parts, x.stride]
        reads = [step.inputs[0].index, _TABLE]
        self.writer.op(
            "gather_rows", arguments, routing.num_used, self.rows, reads, [step.scratch[0].index], self.tokens_at_once
        )

    def _matrix(self, step: Step, name: str, start: int, rows: int, between: tuple[Buffer, Buffer]) -> None:
        """rows: of one expert's `start` on. between: the buffers read and written."""
        matrix, (x, y), routing = self.m.weights.matrices[name], between, step.op.attributes["routing"]
        routed, from_, to = (self._place(b) for b in (step.inputs[1], x, y))
        packed, form = matrix.format.packed, matrix.format.name.lower()
        row_bytes = from_.stride * slots.GROUP_BYTES if x.quantised else from_.stride
        parts = self.m.parts if x.quantised else 1
        per_expert = matrix.rows // routing.num_experts
        per_row = matrix.format.row_bytes(matrix.width)
        skipped = start // 8 * matrix.group_bytes if matrix.packed else start * per_row
        expert_bytes = per_expert // 8 * matrix.group_bytes if matrix.packed else per_expert * per_row
        panels = self.panels and packed.panels and packed.codes is not None
        bounds = self._share(matrix, rows, routing.num_used)
        self.bounds.append(bounds)
        arguments = [address(matrix.data) + skipped, from_.address, to.address, len(bounds) - 1, matrix.units]
        arguments += [address(bounds), slots.PAIRS * (parts == 2), to.stride]
        arguments += [self.m.kernels[f"tile_{form}_{n}"] for n in (1, 2, 4)]
        arguments += [row_bytes, parts, 0 if matrix.packed else self.m.kernels[f"pack_{form}"], per_row]
        arguments += [matrix.group_bytes, expert_bytes, self._table("slots"), routed.address]
        arguments += [parts if x is step.scratch[3] else 0]  # a token's experts share x, but each has its own gated row
        if panels:
            kernels = [self.m.kernels[f"{kind}_{form}"] for kind in ("panel", "unpack")]
            arguments += [PANEL_FROM, *kernels, panel_bytes(packed, matrix.units), panel_layout(packed).unit]
        else:
            arguments += [0, 0, 0, 0, 0]
        arguments += [max(4, _BLOCK_BYTES // row_bytes // 4 * 4)]
        used = min(routing.num_experts, self._most_tokens() * routing.num_used)
        chunks = used * (len(bounds) - 1)
        self.writer.op("matmul_experts", arguments, chunks, None, self._reads(step, x.index), [y.index])

    def _most_tokens(self) -> int:
        """Tokens of a batch of this shape, at most."""
        if self.panels:
            return 1 << 20
        return (self.tile if self.tile < 4 else _SMALL_BATCH) // self.m.parts

    def _share(self, matrix: Matrix, rows: int, used: int) -> NDArray[np.int64]:
        """Cut the row groups of one expert into chunks, all of a size. -> where each begins, then the end."""
        groups = rows // 8
        if self.panels:
            each = _PREFILL_GROUPS
        else:
            wanted = used * groups * matrix.group_bytes // (_CHUNKS_OF_A_THREAD * self.m.threads)
            each = min(max(wanted, _LEAST_CHUNK_BYTES), _MOST_CHUNK_BYTES) // matrix.group_bytes
        count = -(-groups // max(1, each))
        each = -(-groups // count)
        each += each % ROW_GROUPS if self.panels else 0
        return np.array([*range(0, groups, each), groups], np.int64)

    def _between(self, step: Step, biases: list[int]) -> None:
        _, gate, up, gated, _ = step.scratch
        from_, also, to, routed = (self._place(b) for b in (gate, up, gated, step.inputs[1]))
        ffn, used = step.op.attributes["ffn"], step.op.attributes["routing"].num_used
        groups, some = self._groups(gate.width)
        arguments = [from_.address, also.address, from_.stride, groups, some]
        arguments += [_GATED[step.op.attributes["activation"]], self._table("rows"), routed.address, *biases[:2]]
        arguments += [ffn, to.address, to.stride, slots.QUANTISE if gated.quantised else slots.STORE, self.m.parts]
        blocks = used * -(-groups // some)
        reads = self._reads(step, gate.index, up.index)
        self.writer.op("gated_experts", arguments, blocks, self.rows, reads, [gated.index], self.tokens_at_once)

    def _sum(self, step: Step, biases: list[int]) -> None:
        down, routing = step.scratch[4], step.op.attributes["routing"]
        y, routed = self._place(down), self._place(step.inputs[1])
        groups, some = self._groups(step.out.width)
        arguments = [y.address, y.stride, groups, some, routed.address, routed.stride, routing.num_used]
        arguments += [self._table("places"), biases[2], step.out.width, *self._emit(step)]
        reads = [*self._reads(step, down.index), step.inputs[1].index]
        reads += [step.out.index] if step.how == slots.ADD else []
        blocks = -(-groups // some)
        self.writer.op(
            "sum_experts", arguments, blocks, self.rows, reads, [step.out.index], blocks * self.tokens_at_once
        )
