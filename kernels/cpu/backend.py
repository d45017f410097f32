"""The CPU backend: a program and its weights made ready, then one `run` per batch. The main path of a step is here.

`run` writes the batch where the tapes look for it and walks a tape: the body over all tokens, the head over those whose
logits are wanted; in decode both are one. No type is decided on the way, and nothing large allocated. Knows no model, no
text and no sequence policy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ..ops import Aborted, Batch, CacheLayer, Op, Program, Rope
from . import cache_kernels, isa, lower, lower_experts, objects, slots, tasks, threads, vocabulary, weights
from .machine import CacheGroup, Machine, Place, Shape
from .memory import address, aligned, release_code
from .plan import Buffer, add_hidden, make_plan
from .rope_table import RopeTable

MAX_LOGIT_ROWS = 32
"""Logit rows computed at once; more are done in pieces."""

Progress = Callable[[str, int, int], None]
RopeKey = tuple[Rope, str | None, int | None]
"""How to turn, by which factors, and from which position on all alike."""


class Cache(Protocol):
    """Where K and V lie.

    Layers of a group share block tables and blocks. columns_of_group: (kept, ring), see attention.py. formats: of K and of V
    (../cache_formats). address: layer -> addresses of its first K and first V tile; those of kv head g in block b lie
    b * block_bytes_of_group + g * tile bytes further.
    """

    @property
    def group_of_layer(self) -> tuple[int, ...]: ...

    @property
    def columns_of_group(self) -> tuple[tuple[int, int], ...]: ...

    @property
    def block_bytes_of_group(self) -> tuple[int, ...]: ...

    @property
    def formats(self) -> tuple[str, str]: ...

    def address(self, layer: int) -> tuple[int, int]: ...


class CpuBackend:
    """Runs a program on this CPU.

    source: the weights by name. cache: addresses of the cache layers; its block tables come with each batch.
    num_threads: None for the machine's default. max_tokens, max_sequences: most in one batch. max_context: positions of
    a sequence, None for no end (every attention layer then has a window).
    packed: re-order matrices at load, or read them as they are mapped. mapped: all of them, packed before. precise: multiply
    with activations of two int8 parts, about 15 bits, at twice the arithmetic. objects_folder: where compiled kernels are kept.
    hidden: f32[M, E], the hidden states that the last batch wanted.
    level: instruction level, None for the best. progress(stage, done, total) is told about compiling and loading.
    """

    def __init__(
        self,
        program: Program,
        source: weights.Source,
        cache: Cache,
        *,
        objects_folder: Path,
        num_threads: int | None = None,
        max_tokens: int = 512,
        max_sequences: int = 1,
        max_context: int | None = 4096,
        packed: bool = True,
        mapped: Mapping[str, NDArray[np.uint8]] | None = None,
        precise: bool = False,
        level: isa.Level | None = None,
        progress: Progress | None = None,
    ) -> None:
        self._parts = 2 if precise else 1
        self.program, self.level = program, level or objects.choose_level().level
        names = kernel_names(program, source, cache.formats)
        self._kernels = objects.addresses(names, self.level, objects_folder, progress)
        release_code("libllvmlite")
        self._task_tokens = lower.task_tokens(program)
        scratch = lower.attention_scratch_bytes(program, cache.formats[0], max(self._task_tokens, tasks.FEW))
        scratch = max(scratch, lower_experts.scratch_bytes(program))
        scratch = max(scratch, weights.scratch_bytes(program, source, packed or mapped is not None))
        self.threads = threads.Threads(num_threads or threads.default_threads(), self._kernels, scratch)
        self.weights = weights.load_weights(program, source, packed, self._kernels, self.threads, progress, mapped)
        self.vocab_size = program.output.width
        self.vocabulary = vocabulary.CpuVocabulary(self._kernels, self.vocab_size, self.threads)
        self._make_inputs(max_tokens, max_sequences, max_context)
        self._make_machine(cache)

    # ---- made once ----
    def _make_inputs(self, max_tokens: int, max_sequences: int, max_context: int | None) -> None:
        rows = _whole_tiles(max_tokens)
        self.max_tokens = max_tokens
        self._token_ids, self._positions, self._sequences = (np.zeros(rows, np.int64) for _ in range(3))
        self._views = [a.data for a in (self._token_ids, self._positions, self._sequences)]
        self._logit_rows = np.zeros(MAX_LOGIT_ROWS, np.int64)
        self._ropes = self._make_rope_tables(rows, max_sequences)
        reach = max_reach(self.program.cache_layers, max_context, rows)
        self._partial_rows = tasks.max_partial_rows(rows, max_sequences, reach)
        self._max_tasks = tasks.max_tasks(rows, max_sequences, reach)
        ctx = self.threads.ctx
        ctx[slots.TOKEN_IDS], ctx[slots.POSITIONS] = address(self._token_ids), address(self._positions)
        ctx[slots.SEQUENCES], ctx[slots.LOGIT_ROWS] = address(self._sequences), address(self._logit_rows)

    def _make_machine(self, cache: Cache) -> None:
        plan = make_plan(self.program, self.weights.reads_int8)
        hidden_steps = add_hidden(plan, self.program)
        rows = len(self._positions)
        self._memory = {
            b.index: _room(b, (_whole_tiles(MAX_LOGIT_ROWS) if b.head else rows) * b.copies, self._parts)
            for b in plan.buffers
        }
        self._groups = [
            CacheGroup(
                aligned(self._max_tasks * 8 * slots.TASK_WORDS).view(np.int64).reshape(-1, slots.TASK_WORDS),
                aligned(rows * 24).view(np.int64).reshape(-1, 3),
                columns,
                block_bytes,
            )
            for columns, block_bytes in zip(cache.columns_of_group, cache.block_bytes_of_group, strict=True)
        ]
        self._reaches = [
            next(
                (x.window, x.num_sink_tokens)
                for x, g in zip(self.program.cache_layers, cache.group_of_layer, strict=True)
                if g == group
            )
            for group in range(len(self._groups))
        ]
        machine = Machine(
            kernels=self._kernels,
            threads=self.threads.count,
            parts=self._parts,
            places={b.index: _place(b, self._memory[b.index]) for b in plan.buffers},
            weights=self.weights,
            rope_table=self._rope_table,
            layers=self.program.cache_layers,
            layer_group=cache.group_of_layer,
            groups=tuple(self._groups),
            cache_address=cache.address,
            cache_formats=cache.formats,
            partials=aligned(self._partial_rows * _partial_row_bytes(self.program)),
            expert_table=lower_experts.make_table(self.program, max(rows, _whole_tiles(MAX_LOGIT_ROWS))),
        )
        self._machine = machine  # keeps what the tapes point to alive
        self._steps = {"whole": (plan.body, plan.head), "body": (plan.body, []), "head": ([], plan.head)}
        self._steps["hidden"] = [], hidden_steps
        self._tapes: dict[tuple[str, Shape], lower.LoweredTape] = {}
        self._logits = self._rows(plan.head[-1].out)
        self._hidden = self._rows(hidden_steps[-1].out) if hidden_steps else self._logits[:0]
        self.hidden = np.zeros((0, self.program.hidden.width), np.float32)

    def _rows(self, out: Buffer) -> NDArray[np.float32]:
        return self._memory[out.index].view(np.float32).reshape(_whole_tiles(MAX_LOGIT_ROWS), -1)

    def _make_rope_tables(self, rows: int, max_sequences: int) -> dict[RopeKey, RopeTable]:
        """One table for all ops that turn alike."""
        tables = {}
        for rope, factors, last in dict.fromkeys(_rope_key(op) for op in self.program.ops if op.name == "rope"):
            values = None if factors is None else self.weights.vectors[factors]
            tables[rope, factors, last] = RopeTable(rope, values, last, rows=rows, max_sequences=max_sequences)
        return tables

    def _rope_table(self, op: Op) -> NDArray[np.float32]:
        return self._ropes[_rope_key(op)].values

    def _tape(self, part: str, tokens: int) -> lower.LoweredTape:
        """The tape of the body, the head or the whole for so many tokens, written when first asked for: few are needed."""
        shape = self._shape(tokens)
        if (part, shape) not in self._tapes:
            self._tapes[part, shape] = lower.lower(self._machine, shape, *self._steps[part])
        return self._tapes[part, shape]

    def _shape(self, tokens: int) -> Shape:
        """How so many tokens are multiplied."""
        rows = tokens * self._parts
        return Shape(rows if rows <= 2 else 4, rows >= lower.PANEL_ROWS)

    # ---- every step ----
    def run(self, batch: Batch) -> NDArray[np.float32]:
        """Compute a batch. -> logits f32[N, V], valid until the next call. The cache gets the tokens' K and V.

        Raises Aborted if `abort` was called: what the cache got at the batch's positions is then no one's.
        """
        n, wanted = len(batch.token_ids), len(batch.logit_rows)
        assert 0 < n <= self.max_tokens, f"{n} tokens in a batch of at most {self.max_tokens}"
        self._take(batch, n)
        counts = [
            tasks.share_out(*group.views, batch.positions, batch.sequences, *reach, self._task_tokens)
            for group, reach in zip(self._groups, self._reaches, strict=True)
        ]
        if 0 < wanted <= MAX_LOGIT_ROWS and self._shape(n) == self._shape(wanted) and not len(batch.hidden_rows):
            self._logit_rows[:wanted] = batch.logit_rows
            self._walk(self._tape("whole", n), batch, (1, n, wanted, *counts))
            return self._logits[:wanted, : self.vocab_size]
        self._walk(self._tape("body", n), batch, (1, n, 0, *counts))
        assert not len(batch.hidden_rows) or len(self._hidden), (
            "this program's hidden states are not made by themselves"
        )
        self.hidden = self._run_head(
            "hidden", batch, batch.hidden_rows, counts, self._hidden[:, : self.hidden.shape[1]]
        )
        return self._run_head("head", batch, batch.logit_rows, counts, self._logits[:, : self.vocab_size])

    def _take(self, batch: Batch, n: int) -> None:
        """Put a batch where the tapes look for it."""
        if n == 1:  # a decode step: NumPy's ways of doing this would be most of what Python costs
            position = int(batch.positions[0])
            self._views[0][0], self._views[1][0] = int(batch.token_ids[0]), position
            self._views[2][0] = int(batch.sequences[0])
            for table in self._ropes.values():
                table.take_one(position)
        else:
            self._token_ids[:n], self._positions[:n] = batch.token_ids, batch.positions
            self._sequences[:n] = batch.sequences
            for table in self._ropes.values():
                table.take(self._positions[:n])

    def _run_head(
        self, part: str, batch: Batch, rows: NDArray[np.int32], counts: list[int], out: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """Results of the wanted rows after the body has run, a few rows at a time. out: where the tape puts them."""
        results = np.empty((len(rows), out.shape[1]), np.float32)
        for start in range(0, len(rows), MAX_LOGIT_ROWS):
            piece = rows[start : start + MAX_LOGIT_ROWS]
            n = len(piece)
            self._logit_rows[:n] = piece
            self._walk(self._tape(part, n), batch, (1, 0, n, *counts))
            results[start : start + n] = out[:n]
        return results

    def _walk(self, lowered: lower.LoweredTape, batch: Batch, sizes: tuple[int, ...]) -> None:
        lowered.point_to(batch.block_tables)
        lowered.tape.resize(sizes)
        self.threads.run(lowered.tape, tokens=sizes[1], logit_tokens=sizes[2])
        if self.threads.ctx[slots.ABORT]:
            self.threads.ctx[slots.ABORT] = 0
            raise Aborted

    def abort(self) -> None:
        """Make the `run` that is on, or else the next, end as soon as the chunks that are on are done. From any thread."""
        self.threads.ctx[slots.ABORT] = 1

    @property
    def weight_bytes(self) -> int:
        """Bytes of weights that decoding one token reads."""
        return weights.decode_bytes(self.program, self.weights.matrices)

    def close(self) -> None:
        """Stop the threads. Memory goes with the last reference."""
        self.threads.close()


def max_reach(layers: Sequence[CacheLayer], max_context: int | None, max_tokens: int) -> int:
    """Most positions that the tokens of one batch look back on in any layer: the batch's own are among them."""
    reach = 0
    for layer in layers:
        if layer.window is not None:
            seen = layer.num_sink_tokens + layer.window + max_tokens
            reach = max(reach, seen if max_context is None else min(seen, max_context))
        else:
            assert max_context is not None, "a layer that sees everything needs an end of the context"
            reach = max(reach, max_context)
    return reach


def _rope_key(op: Op) -> RopeKey:
    return op.attributes["rope"], op.weights[0] if op.weights else None, op.attributes["last_position"]


def kernel_names(
    program: Program, source: weights.Source, cache_formats: tuple[str, str] = ("f16", "f16")
) -> list[str]:
    """Names of all kernels that running the program takes, with a cache of these formats of K and V."""
    of_cache, of_weights = cache_kernels.names(*cache_formats).values(), weights.kernel_names(program, source)
    return [*threads.KERNELS, *lower.kernel_names(program), *vocabulary.KERNELS, *of_cache, *of_weights]


def _attention_width(op: Op, program: Program) -> int:
    layer = program.cache_layers[op.attributes["layer"]]
    return int(op.attributes["num_heads"] * lower.partial_bytes(layer.dims[1]))


def _partial_row_bytes(program: Program) -> int:
    return max(_attention_width(op, program) for op in program.ops if op.name == "attention")


def _whole_tiles(rows: int) -> int:
    """Room for rows: tiles have up to four tokens, those of plain panels three."""
    return -(-rows // 12) * 12


def _room(buffer: Buffer, rows: int, parts: int) -> NDArray[np.uint8]:
    if buffer.quantised:
        return aligned(rows * parts * (buffer.width // 32) * 48)
    return aligned(rows * lower.row_stride(buffer.width))


def _place(buffer: Buffer, memory: NDArray[np.uint8]) -> Place:
    stride = buffer.width // 32 if buffer.quantised else lower.row_stride(buffer.width)
    return Place(address(memory), stride)
