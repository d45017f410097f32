"""Weights in memory: matrices packed or raw, vectors as float32. Names and shapes come from a source such as a GGUF file.

Packing happens tensor by tensor on all threads and gives the mapped pages back, so memory is never double. Raw matrices
stay in the map, and the matrix kernel packs eight rows at a time. Matrices packed before lie in `packed_file.py`'s map.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from .. import formats
from ..ops import MULTIPLIES, Op, Program
from .memory import SLACK, address, aligned_f32, arena
from .panels import ROW_GROUPS, panel_bytes
from .tape import TapeWriter
from .threads import Threads

_PACK_CHUNK_BYTES = 1 << 18
_PACK_PIECE_BYTES = 8 << 20  # packed before the mapped pages go back: an output matrix can be most of a model

Progress = Callable[[str, int, int], None]


class Source(Protocol):
    """Where weights come from: named tensors with .shape and .type_name, and their bytes."""

    @property
    def tensors(self) -> Mapping[str, Any]: ...

    def data(self, name: str) -> NDArray[np.uint8]:
        """The tensor's bytes, mapped."""

    def forget(self, name: str) -> None:
        """Let go of the memory that mapping the tensor took."""


@dataclass(frozen=True, slots=True)
class Matrix:
    """A weight (rows, width); those of experts lie one below the other. data: packed bytes, or the raw ones of the source."""

    format: formats.Format
    rows: int
    width: int
    data: NDArray[np.uint8]
    packed: bool

    @property
    def units(self) -> int:
        """Units of a row: how often the tile kernel goes round."""
        return self.width // self.format.packed.columns

    @property
    def group_bytes(self) -> int:
        """Bytes of eight packed rows."""
        return self.units * self.format.packed.unit_bytes


class Weights:
    """All weights of a program. matrices: of `linear` and `experts`, and the tables of `embed`; vectors: float32."""

    def __init__(self) -> None:
        self.matrices: dict[str, Matrix] = {}
        self.vectors: dict[str, NDArray[np.float32]] = {}

    def reads_int8(self, name: str) -> bool:
        """Whether the matrix multiplies with quantised activations."""
        return self.matrices[name].format.packed.activation == "q8"


def matrices_of(op: Op) -> tuple[str, ...]:
    """The weights of an op that are matrices; the others are vectors."""
    if op.name == "experts":
        return op.weights[: op.attributes["matrices"]]
    return op.weights[:1] if op.name in ("embed", *MULTIPLIES) else ()


def matrix_names(program: Program) -> list[str]:
    """Names of all matrices, in the order that a step reads them."""
    return list(dict.fromkeys(name for op in program.ops for name in matrices_of(op)))


def raw_matrix(source: Source, name: str) -> Matrix:
    """A tensor of the source as a raw matrix; UnsupportedError for a format there is no kernel for."""
    info = source.tensors[name]
    *rows, width = info.shape
    return Matrix(formats.get(info.type_name), math.prod(rows), width, source.data(name), packed=False)


def raw_matrices(program: Program, source: Source) -> dict[str, Matrix]:
    """All matrices of a program as they lie in the source, in the order that a step reads them."""
    return {name: raw_matrix(source, name) for name in matrix_names(program)}


def parts_read(program: Program) -> dict[str, float]:
    """Matrices that decoding one token multiplies with, and how much of each: of experts those that a token uses."""
    parts: dict[str, float] = {}
    for op in program.ops:
        if op.name in MULTIPLIES:
            parts[op.weights[0]] = 1.0
        elif op.name == "experts":
            routing = op.attributes["routing"]
            parts.update(dict.fromkeys(matrices_of(op), routing.num_used / routing.num_experts))
    return parts


def decode_bytes(program: Program, matrices: Mapping[str, Matrix]) -> int:
    """Bytes of weights that decoding one token reads."""
    return round(sum(matrices[name].data.nbytes * part for name, part in parts_read(program).items()))


def kernel_names(program: Program, source: Source) -> list[str]:
    """Names of the kernels that the program's matrices need."""
    names: dict[str, None] = {"pack_matrix": None}
    for op in program.ops:
        for weight in matrices_of(op):
            format = formats.get(source.tensors[weight].type_name)
            uses = [f"expand_{format.name.lower()}"] if op.name == "embed" else linear_kernels(format)
            names.update(dict.fromkeys([f"pack_{format.name.lower()}", *uses]))
    return list(names)


def linear_kernels(format: formats.Format) -> list[str]:
    """Names of the kernels that multiply with a format."""
    name, tiles = format.name.lower(), [f"tile_{format.name.lower()}_{rows}" for rows in (1, 2, 4)]
    if not format.packed.panels:
        return tiles
    return [*tiles, f"panel_{name}"] if format.packed.codes is None else [*tiles, f"panel_{name}", f"unpack_{name}"]


def load_weights(
    program: Program,
    source: Source,
    packed: bool,
    kernels: Mapping[str, int],
    threads: Threads,
    progress: Progress | None,
    mapped: Mapping[str, NDArray[np.uint8]] | None = None,
) -> Weights:
    """Bring a program's weights into memory. progress("load", done, total) counts bytes.

    mapped: all matrices by name, packed already: used where they lie. Without it they are packed here, or stay raw.
    """
    weights = Weights()
    for op in program.ops:
        for name in op.weights[len(matrices_of(op)) :]:
            if name not in weights.vectors:
                weights.vectors[name] = load_vector(source, name)
    raw = raw_matrices(program, source)
    if mapped is not None:
        weights.matrices = {name: replace(m, data=mapped[name], packed=True) for name, m in raw.items()}
        return weights
    if not packed:
        weights.matrices = raw
        return weights
    room = _cut(arena(packed_size(raw)), raw)
    weights.matrices = {name: replace(m, data=room[name], packed=True) for name, m in raw.items()}
    total, done = sum(m.data.nbytes for m in raw.values()), 0
    for batch in _batches(raw, room):
        pack_pieces([piece for _, piece in batch], kernels, threads)
        for name in dict.fromkeys(name for name, _ in batch):
            source.forget(name)
        done += sum(piece.raw_bytes for _, piece in batch)
        if progress:
            progress("load", done, total)
    return weights


def load_vector(source: Source, name: str) -> NDArray[np.float32]:
    """A tensor as float32, flat."""
    info = source.tensors[name]
    rows = source.data(name).reshape(1, -1)
    return aligned_f32(formats.get(info.type_name).dequantize(rows))


def packed_size(matrices: Mapping[str, Matrix]) -> int:
    """Bytes of all matrices, packed one after the other."""
    return sum(map(packed_bytes, matrices.values()))


def packed_bytes(matrix: Matrix) -> int:
    """Room for a packed matrix; the next one begins on a cache line of its own."""
    return matrix.format.packed_bytes(matrix.rows, matrix.width) + 63 & ~63


def _cut(room: NDArray[np.uint8], matrices: Mapping[str, Matrix]) -> dict[str, NDArray[np.uint8]]:
    """Share out an arena in the order of the matrices, which is the order that a step reads them in."""
    ends = itertools.accumulate(map(packed_bytes, matrices.values()))
    return {name: room[end - packed_bytes(m) : end] for end, (name, m) in zip(ends, matrices.items(), strict=True)}


@dataclass(frozen=True, slots=True)
class Piece:
    """Some rows of a raw matrix, of which the first is a multiple of eight, and the address they are packed to."""

    matrix: Matrix
    rows: slice
    to: int

    @property
    def count(self) -> int:
        """Number of rows."""
        count: int = self.rows.stop - self.rows.start
        return count

    @property
    def raw_bytes(self) -> int:
        return self.count * self.matrix.format.row_bytes(self.matrix.width)

    @property
    def packed_bytes(self) -> int:
        return -(-self.count // 8) * self.matrix.group_bytes


def pieces(matrix: Matrix, to: int) -> Iterator[Piece]:
    """Cut a matrix, to be packed to an address, into pieces that are not too large; each fits behind the last."""
    step = 8 * max(1, _PACK_PIECE_BYTES // matrix.group_bytes)
    for first in range(0, matrix.rows, step):
        rows = slice(first, min(first + step, matrix.rows))
        yield Piece(matrix, rows, to + first // 8 * matrix.group_bytes)


def _batches(raw: Mapping[str, Matrix], room: Mapping[str, NDArray[np.uint8]]) -> Iterator[list[tuple[str, Piece]]]:
    """Pieces that are packed together: enough to keep all threads busy, few enough to hold little memory twice."""
    batch: list[tuple[str, Piece]] = []
    size = 0
    for name, matrix in raw.items():
        for piece in pieces(matrix, address(room[name])):
            if batch and size + piece.packed_bytes > _PACK_PIECE_BYTES:
                yield batch
                batch, size = [], 0
            batch.append((name, piece))
            size += piece.packed_bytes
    if batch:
        yield batch


def pack_pieces(some: Sequence[Piece], kernels: Mapping[str, int], threads: Threads) -> None:
    """Pack pieces on all threads, in one walk."""
    writer = TapeWriter(kernels, [])
    for piece in some:
        matrix, count = piece.matrix, piece.count
        row_bytes = matrix.format.row_bytes(matrix.width)
        groups_at_once = max(1, _PACK_CHUNK_BYTES // matrix.group_bytes)
        arguments = [
            address(matrix.data) + piece.rows.start * row_bytes,
            row_bytes,
            count,
            piece.to,
            matrix.units,
            matrix.group_bytes,
            groups_at_once,
            kernels[f"pack_{matrix.format.name.lower()}"],
        ]
        writer.op("pack_matrix", arguments, -(-count // (8 * groups_at_once)), None, [], [])
    tape = writer.finish()
    tape.resize((1,))
    threads.run(tape)


def scratch_bytes(program: Program, source: Source, packed: bool) -> int:
    """Scratch a thread needs: a panel of any matrix, and behind it the packed rows of a raw one."""
    raw = raw_matrices(program, source).values()
    panels = [panel_bytes(m.format.packed, m.units) for m in raw]
    rows = [0 if packed else ROW_GROUPS * m.group_bytes for m in raw]
    return max(map(sum, zip(panels, rows, strict=True)), default=0) + SLACK
