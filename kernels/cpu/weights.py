"""Weights in memory: matrices packed or raw, vectors as float32. Names and shapes come from a source such as a GGUF file.

Packing happens tensor by tensor on all threads and gives the mapped pages back, so memory is never double. Raw matrices
stay in the map, and the matrix kernel packs eight rows at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from .. import formats
from ..ops import Program
from .memory import SLACK, address, aligned, aligned_f32
from .tape import TapeWriter
from .threads import Threads

_PACK_CHUNK_BYTES = 1 << 18


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
    """A weight (rows, width). data: packed bytes, or the raw ones of the source."""

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
    """All weights of a program. matrices: those of `linear`; vectors: float32; tables: raw, for embedding rows."""

    def __init__(self) -> None:
        self.matrices: dict[str, Matrix] = {}
        self.vectors: dict[str, NDArray[np.float32]] = {}
        self.tables: dict[str, Matrix] = {}

    @property
    def matrix_bytes(self) -> int:
        """Bytes of all matrices: what decoding one token reads."""
        return sum(m.data.nbytes for m in self.matrices.values())

    def reads_int8(self, name: str) -> bool:
        """Whether the matrix multiplies with quantised activations."""
        return self.matrices[name].format.packed.activation == "q8"


def raw_matrix(source: Source, name: str) -> Matrix:
    """A tensor of the source as a raw matrix; UnsupportedError for a format there is no kernel for."""
    info = source.tensors[name]
    rows, width = info.shape
    return Matrix(formats.get(info.type_name), rows, width, source.data(name), packed=False)


def kernel_names(program: Program, source: Source, packed: bool) -> list[str]:
    """Names of the tile and pack kernels that the program's matrices need."""
    names: dict[str, None] = {}
    for op in program.ops:
        if op.name == "linear":
            name = formats.get(source.tensors[op.weights[0]].type_name).name.lower()
            names.update(dict.fromkeys([f"pack_{name}", *(f"tile_{name}_{t}" for t in (1, 2, 4))]))
    return [*names, *(["pack_matrix"] if packed else [])]


def load_weights(
    program: Program,
    source: Source,
    packed: bool,
    kernels: Mapping[str, int],
    threads: Threads,
    progress: Callable[[str, int, int], None] | None,
) -> Weights:
    """Bring a program's weights into memory. progress("load", done, total) counts bytes."""
    weights = Weights()
    names = {op.weights[0]: None for op in program.ops if op.name == "linear"}
    total, done = sum(source.data(n).nbytes for n in names), 0
    for op in program.ops:
        if op.name == "embed":
            weights.tables[op.weights[0]] = raw_matrix(source, op.weights[0])
        vectors = op.weights[1:] if op.name in ("embed", "linear") else op.weights
        for name in vectors:
            if name not in weights.vectors:
                weights.vectors[name] = load_vector(source, name)
    for name in names:
        matrix = raw_matrix(source, name)
        weights.matrices[name] = pack(matrix, kernels, threads) if packed else matrix
        done += source.data(name).nbytes
        if packed:
            source.forget(name)
        if progress:
            progress("load", done, total)
    return weights


def load_vector(source: Source, name: str) -> NDArray[np.float32]:
    """A one-dimensional tensor as float32."""
    info = source.tensors[name]
    rows = source.data(name).reshape(1, -1)
    return aligned_f32(formats.get(info.type_name).dequantize(rows))


def pack(matrix: Matrix, kernels: Mapping[str, int], threads: Threads) -> Matrix:
    """A raw matrix packed, on all threads."""
    name = matrix.format.name.lower()
    groups = -(-matrix.rows // 8)
    packed = aligned(groups * matrix.group_bytes)
    some = max(1, _PACK_CHUNK_BYTES // matrix.group_bytes)
    writer = TapeWriter(kernels, [])
    arguments = [
        address(matrix.data),
        matrix.format.row_bytes(matrix.width),
        matrix.rows,
        address(packed),
        matrix.units,
        matrix.group_bytes,
        some,
        kernels[f"pack_{name}"],
    ]
    writer.op("pack_matrix", arguments, -(-groups // some), None, [], [])
    tape = writer.finish()
    tape.resize((1,))
    threads.run(tape.stages, long_chunks=True)
    return Matrix(matrix.format, matrix.rows, matrix.width, packed, packed=True)


def scratch_bytes(matrices: list[Matrix]) -> int:
    """Scratch a thread needs to pack eight rows of any raw matrix."""
    return max((m.group_bytes for m in matrices if not m.packed), default=0) + SLACK
