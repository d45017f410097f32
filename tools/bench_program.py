"""A small program of matrices in one format, run by the real backend and timed by its own clock: for `bench_formats.py`.

What is measured is what a model does: packing, tapes, threads and kernels are those of `CpuBackend`. Layers are those of a
llama without its attention: a square matrix, gate, up and down; one tiny attention at the start is there because the
backend expects one. Knows no format's bytes: random ones are kept where `dequantize` makes ordinary numbers of them.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgellm.cache.kv import KVCache
from edgellm.kernels import formats
from edgellm.kernels.cpu import objects, slots
from edgellm.kernels.cpu.backend import CpuBackend, kernel_names
from edgellm.kernels.cpu.memory import address
from edgellm.kernels.cpu.tape import Tape
from edgellm.kernels.ops import Batch, Builder, CacheLayer, Program

OTHER_KERNELS = frozenset(
    (
        "embed",
        "norm",
        "layer_norm",
        "gated",
        "scale",
        "softcap",
        "quantise",
        "add_rows",
        "gather",
        "rope",
        "store_kv",
        "attend",
        "combine",
    )
)
"""Kernels whose time is not a matrix product's."""
DIFFERENT_ROWS = 32  # of a random matrix; they repeat, since speed does not depend on values
SEED_WIDTH = 32  # of the embedding and the attention head
SMALLEST, LARGEST = 2.0**-12, 64.0  # what the largest value of a random group may be: no subnormal, no overflow later


@dataclass(frozen=True)
class Shape:
    """Widths of the layers. A layer's matrices are (hidden, hidden), twice (ffn, hidden) and (hidden, ffn)."""

    hidden: int = 2048
    ffn: int = 8192

    @property
    def layer_values(self) -> int:
        """Weights of a layer."""
        return self.hidden * (self.hidden + 3 * self.ffn)


@dataclass(frozen=True)
class Tensor:
    """What the backend asks of a weight before its bytes."""

    shape: tuple[int, ...]
    type_name: str


def make_program(layers: int, shape: Shape) -> Program:
    """A network of `layers` layers. Matrices of layer i are called "i.square", "i.gate", "i.up" and "i.down"."""
    b = Builder()
    seed = b.embed("embedding", SEED_WIDTH)
    seed = b.attention(seed, seed, seed, 1, CacheLayer(1, SEED_WIDTH), 1.0)
    x = b.linear(seed, "widen", shape.hidden)
    for i in range(layers):
        h = b.rms_norm(x, "norm", 1e-5)
        h = b.linear(h, f"{i}.square", shape.hidden)
        gate, up = b.linear(h, f"{i}.gate", shape.ffn), b.linear(h, f"{i}.up", shape.ffn)
        x = b.add(x, b.linear(b.gated(gate, up, "silu"), f"{i}.down", shape.hidden))
    x = b.rms_norm(b.logit_rows(x), "norm", 1e-5)
    return b.finish(b.linear(x, "output", 8))


def random_rows(format: formats.Format, rows: int, width: int, rng: np.random.Generator) -> NDArray[np.uint8]:
    """u8[rows, row bytes]: random groups whose values are finite and ordinary; the first DIFFERENT_ROWS rows repeat."""
    wanted = min(rows, DIFFERENT_ROWS) * width // format.group_size
    kept: list[NDArray[np.uint8]] = []
    tries = 0
    while sum(map(len, kept)) < wanted:
        tries += 1
        assert tries < 1000, f"random bytes hardly ever are ordinary numbers of {format.name}"
        groups = rng.integers(0, 256, (8 * wanted, format.group_bytes), np.uint8)
        largest = np.abs(format.dequantize(groups)).max(axis=1)
        with np.errstate(invalid="ignore"):
            kept.append(groups[(largest >= SMALLEST) & (largest <= LARGEST)])
    different = np.concatenate(kept)[:wanted].reshape(-1, format.row_bytes(width))
    return np.resize(different, (rows, different.shape[1]))


class RandomWeights:
    """Where the backend finds the program's weights. The layers share their bytes; each is packed for itself."""

    def __init__(self, format: formats.Format, layers: int, shape: Shape) -> None:
        rng, f32 = np.random.default_rng(0), formats.get("F32")
        self.tensors: dict[str, Tensor] = {}
        self._bytes: dict[str, NDArray[np.uint8]] = {}
        sizes = {"square": (shape.hidden, shape.hidden), "down": (shape.hidden, shape.ffn)}
        sizes["gate"] = sizes["up"] = (shape.ffn, shape.hidden)
        matrices = {kind: random_rows(format, *size, rng).reshape(-1) for kind, size in sizes.items()}
        for i in range(layers):
            for kind, size in sizes.items():
                self.tensors[f"{i}.{kind}"], self._bytes[f"{i}.{kind}"] = Tensor(size, format.name), matrices[kind]
        for name, size in (
            ("embedding", (8, SEED_WIDTH)),
            ("widen", (shape.hidden, SEED_WIDTH)),
            ("norm", (1, shape.hidden)),
            ("output", (8, shape.hidden)),
        ):
            self._bytes[name] = random_rows(f32, *size, rng).reshape(-1)
            self.tensors[name] = Tensor(size if size[0] > 1 else size[1:], "F32")

    def data(self, name: str) -> NDArray[np.uint8]:
        return self._bytes[name]

    def forget(self, name: str) -> None:
        """The system gets nothing back: these bytes are not mapped."""


def is_matrix_stage(tape: Tape) -> NDArray[np.bool_]:
    """Which stages of a tape multiply matrices: bool[stages]."""
    record_bytes = 8 * slots.OP_WORDS
    first = (tape.stages[:, slots.FIRST_OP] - address(tape.records)) // record_bytes
    others = np.array([name not in OTHER_KERNELS for name in tape.names])
    return np.logical_or.reduceat(others, first)


class FormatBench:
    """One format's matrices in memory, packed, and the time that they take for any number of tokens.

    packed_bytes, values: of all layers. pack_rate: bytes of the file packed per second. team: the backend's threads.
    """

    def __init__(
        self, format: formats.Format, layers: int, shape: Shape, threads: int, objects_folder: Path, tokens: int
    ) -> None:
        program = make_program(layers, shape)
        source = RandomWeights(format, layers, shape)
        self.cache = KVCache(program.cache_layers, max(tokens, 64), 1, tokens)
        objects.addresses(kernel_names(program, source), objects.choose_level().level, objects_folder)  # not timed
        self._loads: list[tuple[float, int]] = [(time.perf_counter(), 0)]
        self.backend = CpuBackend(
            program,
            source,
            self.cache,
            objects_folder=objects_folder,
            num_threads=threads,
            max_tokens=tokens,
            max_context=max(tokens, 64),
            progress=self._note,
        )
        self.values = layers * shape.layer_values
        mine = [m for name, m in self.backend.weights.matrices.items() if "." in name]
        self.packed_bytes = sum(m.data.nbytes for m in mine)
        (start, before), (end, after) = self._loads[0], self._loads[-1]
        self.pack_rate = (after - before) / (end - start)
        self.team: Any = self.backend.threads
        self._slot, _ = self.cache.open()
        self.cache.reserve(self._slot, tokens)
        self._run = self.team.run
        self.team.run = self._timed_run  # type: ignore[method-assign]
        self._tapes: dict[int, tuple[NDArray[np.int64], NDArray[np.bool_]]] = {}
        self._seconds = 0.0

    def _note(self, stage: str, done: int, total: int) -> None:
        if stage == "load":
            self._loads.append((time.perf_counter(), done))

    def _timed_run(self, tape: Tape, *args: Any, **options: Any) -> None:
        if id(tape) not in self._tapes:
            self._tapes[id(tape)] = np.zeros(len(tape.stages) + 1, np.int64), is_matrix_stage(tape)
        times, matrix = self._tapes[id(tape)]
        self.team.ctx[slots.TIMES] = address(times)
        start = time.perf_counter()
        self._run(tape, *args, **options)
        seconds = time.perf_counter() - start
        self.team.ctx[slots.TIMES] = 0
        ticks = np.diff(times)
        self._seconds += seconds * float(ticks[matrix].sum() / ticks.sum())

    def matrix_s(self, tokens: int) -> float:
        """Seconds that the matrices of one forward pass of `tokens` tokens take. Raises if the logits are no numbers."""
        ids = np.arange(tokens, dtype=np.int32) % 8
        positions = np.arange(tokens, dtype=np.int64)
        slot = np.full(tokens, self._slot, np.int32)
        self._seconds = 0.0
        logits = self.backend.run(Batch(ids, positions, slot, self.cache.tables, np.array([tokens - 1], np.int32)))
        assert np.isfinite(logits).all(), "random weights gave no numbers"
        return self._seconds

    def close(self) -> None:
        """Stop the threads."""
        self.backend.close()
