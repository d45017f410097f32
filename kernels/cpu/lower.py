"""Turn a plan's steps into tape records: the only place that knows both the ops and the kernels' arguments.

A tape is written for one number of tokens per activation tile (1, 2 or 4): decode, pairs, everything else. Buffers,
weights and cache are shared by all of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import cache_formats
from ..ops import Program
from . import cache_kernels, lower_experts, lower_rows, slots
from .lower_experts import ExpertLowering
from .lower_rows import float_word
from .machine import Machine, Shape
from .memory import address
from .panels import PLAIN_TOKENS, ROW_GROUPS, panel_bytes, panel_layout
from .plan import Step
from .tape import Tape
from .weights import Matrix

_EVERY_PROGRAM = ("embed", "matmul", "matmul_panels", "quantise", "add_rows", "store_kv", "attend", "combine")
KERNELS = tuple(dict.fromkeys([*_EVERY_PROGRAM, *lower_rows.KERNELS.values(), *lower_experts.KERNELS]))
"""All kernels that ops become, but those of a format of weights or of the cache."""
_LEAST_CHUNK_BYTES = 16 << 10  # weights of a decode chunk: below, its first cache misses show
_MOST_CHUNK_BYTES = 256 << 10  # above, a thread that lost its core holds up the others
_MOST_PREFILL_GROUPS = 16  # row groups of a prefill chunk, for the same reason
_BLOCK_BYTES = 256 << 10  # activations that stay in L2 while weights pass
_PANEL_BLOCK_BYTES = 1 << 20  # those that pass a panel, which needs them so slowly that L3 suffices
PANEL_ROWS = 16
"""Rows of activations from which unpacking into panels pays."""


def kernel_names(program: Program) -> list[str]:
    """Those of KERNELS that a program needs."""
    by_op = [*lower_rows.kernel_names(program.ops), *lower_experts.kernel_names(program.ops)]
    return list(dict.fromkeys([*_EVERY_PROGRAM, *by_op]))


class LoweredTape:
    """A tape, the records whose block table comes with each batch: (record, argument, cache group), and what others point to."""

    def __init__(self, tape: Tape, tables: list[tuple[int, int, int]], kept: list[NDArray[Any]]) -> None:
        self.tape, self._tables, self._kept = tape, tables, kept
        self._known: tuple[NDArray[np.int32], ...] = ()

    def point_to(self, block_tables: tuple[NDArray[np.int32], ...]) -> None:
        """Make attention read these tables, i32[S, tiles] per cache group. Usually they are those of last time."""
        if block_tables is not self._known:
            for record, argument, group in self._tables:
                at, table = slots.ARG + argument, block_tables[group]
                self.tape.records[record, at : at + 2] = address(table), table.strides[0]
            self._known = block_tables


def row_stride(width: int) -> int:
    """Bytes of an f32 row: padded, so that 32 values can be read at any of them."""
    return -(-width // 32) * 128


def partial_bytes(head_dim: int) -> int:
    """Bytes of one head in a partial attention result."""
    return row_stride(head_dim) + slots.SOFTMAX_STATE_BYTES


def _in_log2(value: float) -> int:
    """A factor of scores as a record holds it: weights are powers of two."""
    return float_word(value * np.log2(np.e))


def task_tokens(program: Program) -> int:
    """Tokens of a prefill attention task: about 24 query rows, which share tiles and stay in L1 and L2."""
    shared = max(
        (op.attributes["num_heads"] // program.cache_layers[op.attributes["layer"]].num_kv_heads)
        for op in program.ops
        if op.name == "attention"
    )
    return max(1, 24 // int(shared))


def attention_scratch_bytes(program: Program, k_format: str, tokens: int) -> int:
    """Scratch that `attend` needs for a task of `tokens` tokens: per row the softmax's state, scores, sums, q and bounds."""
    most = 0
    for op in program.ops:
        if op.name == "attention":
            layer = program.cache_layers[op.attributes["layer"]]
            rows = tokens * (op.attributes["num_heads"] // layer.num_kv_heads)
            k_dim, v_dim = layer.dims
            row = 96 + 256 + 2 * row_stride(v_dim) + cache_kernels.query_bytes(k_format, k_dim) + 16
            most = max(most, rows * row + 4096)
    return most


def share_rows(groups: int, threads: int, least: int, most: int, taper: bool) -> NDArray[np.int64]:
    """Cut row groups into chunks: half of what is left to all threads, again and again, down to `least` groups.

    Long chunks stream memory best, short ones at the end let all threads finish together (guided self-scheduling,
    Polychronopoulos and Kuck 1987). Without `taper`, all chunks are long: other work follows. -> where each begins, then the end.
    """
    begins, done = [0], 0
    while done < groups:
        share = -(-(groups - done) // (2 * threads)) if taper else -(-groups // threads)
        for _ in range(threads):
            done = min(groups, done + min(most, max(least, share)))
            if done > begins[-1]:
                begins.append(done)
    return np.array(begins, np.int64)


def lower(machine: Machine, shape: Shape, body: list[Step], head: list[Step]) -> LoweredTape:
    """Write the tape of body and head, either of which may be empty."""
    return _Lowering(machine, shape).run(body, head)


class _Lowering(ExpertLowering):
    def __init__(self, machine: Machine, shape: Shape) -> None:
        super().__init__(machine, shape)
        self.tables: list[tuple[int, int, int]] = []
        self.matmuls: dict[int, tuple[Matrix, int]] = {}  # and how many of its rows are used
        self.bounds: list[NDArray[np.int64]] = []

    def run(self, body: list[Step], head: list[Step]) -> LoweredTape:
        for self.rows, steps in (("tokens", body), ("logit_tokens", head)):
            for step in steps:
                getattr(self, f"_{step.name}")(step)
        self._share_rows()
        return LoweredTape(self.writer.finish(), self.tables, [*self.bounds, *self.ones])

    # ---- one method per op ----
    def _embed(self, step: Step) -> None:
        table, out = self.m.weights.matrices[step.op.weights[0]], self._place(step.out)
        name = table.format.name.lower()
        arguments = [
            address(table.data),
            table.units,
            table.group_bytes,
            out.address,
            out.stride,
            float_word(step.op.attributes["scale"]),
            self.m.kernels[f"expand_{name}"],
            0 if table.packed else self.m.kernels[f"pack_{name}"],
            table.format.row_bytes(table.width),
            table.rows,
        ]
        self._op("embed", step, arguments)

    def _linear(self, step: Step) -> None:
        out, start = self._place(step.out), step.op.attributes["start"]
        self._product(step, self._place(step.inputs[0]).address, out.address, start, step.op.output.width)
        if step.op.attributes["bias"]:
            bias = address(self.m.weights.vectors[step.op.weights[1]]) + 4 * start
            arguments = [out.address, out.stride, bias, 0, out.address, out.stride, out.stride // 128]
            self.writer.op("add_rows", arguments, 1, self.rows, [step.out.index], [step.out.index])

    def _head_linear(self, step: Step) -> None:
        """A product for each head; they write parts of one buffer, which the first stands for."""
        # Kernels of float32 rows take them to lie as far apart as they are wide: one row at a time is read of a part.
        x, out, heads = self._place(step.inputs[0]), self._place(step.out), step.op.attributes["num_heads"]
        width, depth = step.op.output.width // heads, step.op.inputs[0].width // heads
        skipped = depth // 32 * 48 * self._rows_of_tile(True) if step.inputs[0].quantised else 4 * depth
        for h in range(heads):
            self._product(step, x.address + h * skipped, out.address + 4 * h * width, h * width, width, h == 0)

    def _product(self, step: Step, from_: int, to: int, start: int, rows_of_y: int, is_first: bool = True) -> None:
        """Rows `start`.. of a matrix times x at an address, to another; is_first: later records wait for it."""
        matrix, x, out = self.m.weights.matrices[step.op.weights[0]], self._place(step.inputs[0]), self._place(step.out)
        name, quantised = matrix.format.name.lower(), step.inputs[0].quantised
        alone = step.name == "head_linear" and not quantised
        panels = self.panels and matrix.format.packed.panels and not alone
        parts = self.m.parts if quantised else 1
        rows = 1 if alone else self._rows_of_tile(quantised)
        x_tile = rows * (x.stride * 48 if quantised else x.stride)
        skipped = start // 8 * matrix.group_bytes if matrix.packed else start * matrix.format.row_bytes(matrix.width)
        arguments = [
            address(matrix.data) + skipped,
            from_,
            to,
            0,  # chunks, and where they begin: see _share_rows
            matrix.units,
            0,
            int(step.how == slots.ADD) | slots.PAIRS * (parts == 2),
            matrix.group_bytes,
            out.stride,
            self.m.kernels[f"panel_{name}" if panels else f"tile_{name}_{rows}"],
            x_tile,
            rows // parts,
            max(1, (_PANEL_BLOCK_BYTES if panels else _BLOCK_BYTES) // x_tile),
            slots.TOKENS if self.rows == "tokens" else slots.LOGIT_TOKENS,
            0 if matrix.packed else self.m.kernels[f"pack_{name}"],
            matrix.format.row_bytes(matrix.width),
            rows_of_y,
        ]
        if panels:
            arguments += self._panel_arguments(matrix)
        reads = [b.index for b in step.inputs] + ([step.out.index] if step.how == slots.ADD else [])
        writes = [step.out.index] if is_first else []
        op = self.writer.op("matmul_panels" if panels else "matmul", arguments, 0, None, reads, writes)
        self.matmuls[op] = matrix, rows_of_y

    def _rows_of_tile(self, quantised: bool) -> int:
        """Rows of activations that a tile kernel takes at once."""
        if quantised:
            return self.tile
        if self.panels:
            return PLAIN_TOKENS
        return 4 if self.tile == 4 else self.tile // self.m.parts

    def _panel_arguments(self, matrix: Matrix) -> list[int]:
        packed = matrix.format.packed
        if packed.codes is None:
            return [0, 0, 0]
        unpack = self.m.kernels[f"unpack_{matrix.format.name.lower()}"]
        return [unpack, panel_bytes(packed, matrix.units), panel_layout(packed).unit]

    def _share_rows(self) -> None:
        """Cut each matrix into chunks. Only the last one of a stage ends in small chunks, which even out the threads."""
        for stage in self.writer.stages():
            matmuls = [op for op in stage if op in self.matmuls]
            for op in matmuls:
                matrix, rows = self.matmuls[op]
                least, most = 1, _MOST_PREFILL_GROUPS
                if self.tile < 4:
                    least = max(1, round(_LEAST_CHUNK_BYTES / matrix.group_bytes))
                    most = max(1, _MOST_CHUNK_BYTES // matrix.group_bytes)
                each = ROW_GROUPS if self.panels else 1
                groups = -(-rows // 8)
                bounds = share_rows(-(-groups // each), self.m.threads, least, most // each, taper=op == matmuls[-1])
                bounds = np.minimum(bounds * each, groups)
                self.bounds.append(bounds)
                self.writer.set_op(op, {3: len(bounds) - 1, 5: address(bounds)}, len(bounds) - 1)

    def _attention(self, step: Step) -> None:
        index, heads = step.op.attributes["layer"], step.op.attributes["num_heads"]
        layer, number = self.m.layers[index], self.m.layer_group[index]
        kv, (dim, v_dim), group = layer.num_kv_heads, layer.dims, self.m.groups[number]
        again = step.op.attributes["again"]  # then k and v are in the cache, and no inputs
        q, *rest = (self._place(b) for b in step.inputs)
        k, v, *rest = (q, q, *rest) if again else rest
        formats = self.m.cache_formats
        kernels = {part: self.m.kernels[name] for part, name in cache_kernels.names(*formats).items()}
        tiles = [cache_formats.get(formats[0]).k_tile_bytes(dim), cache_formats.get(formats[1]).v_tile_bytes(v_dim)]
        places = [*group.columns, group.block_bytes, *tiles, kv]
        # Resources beside buffers: this layer's cache, and the partial results that all layers share.
        cache, partials = -2 - index, -1
        arguments = [k.address, k.stride, v.address, v.stride, *self.m.cache_address(index), 0, 0, *places, dim]
        arguments += [kernels["store_k"], kernels["store_v"], v_dim]
        if not again:
            read = [step.inputs[1].index, step.inputs[2].index]
            self.tables.append((self.writer.op("store_kv", arguments, kv, self.rows, read, [cache]), 6, number))
        scale, cap = (_in_log2(step.op.attributes[name]) for name in ("scale", "softcap"))
        home, part = address(self.m.partials), partial_bytes(v_dim)
        arguments = [q.address, q.stride, *self.m.cache_address(index), 0, 0, *places, heads // kv, dim]
        arguments += [address(group.tasks), layer.window or 0, scale, cap, layer.num_sink_tokens]
        arguments += [
            (rest[0] if rest else q).address,
            home,
            part,
            kernels["ready"],
            kernels["score"],
            kernels["weigh"],
        ]
        arguments += [cache_kernels.query_bytes(formats[0], dim), v_dim]
        read = [cache, step.inputs[0].index, *(b.index for b in step.inputs[1 if again else 3 :])]
        self.tables.append((self.writer.op("attend", arguments, kv, f"tasks{number}", read, [partials]), 4, number))
        sinks = address(self.m.weights.vectors[step.op.weights[0]]) if step.op.weights else 0
        rotated = int(cache_formats.get(formats[1]).rotated)
        arguments = [home, part, heads, v_dim, address(group.where), sinks, rotated, *self._emit(step)]
        each = heads * self.tokens_at_once
        self.writer.op("combine", arguments, heads, self.rows, [partials], [partials, step.out.index], each)
