"""What a format is: its name, its GGML type number, the size of its group, and what the bytes of a group mean.

Knows no single format: each has its own file, which reads as that format's specification in ggml's own letters.
Bytes are little-endian, as GGUF stores them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]
Kernel = Callable[..., None]

_VALUES_AT_ONCE = 1 << 19  # bounds the temporaries of `dequantize` to a few MB


CODE_BYTES = {
    "one_bit": 32, "two_bits": 64, "three_bits": 96, "nibbles": 128, "five_bits": 160, "six_bits": 192, "whole_bytes": 256,
}  # fmt: skip
"""Bytes of a packed group's codes, eight rows times 32 columns, by their kind."""


@dataclass(frozen=True, slots=True)
class Codes:
    """How the codes of a packed group lie: a function of cpu/unpack.py. table: what they stand for, none if for themselves."""

    kind: str
    table: tuple[int, ...] = ()

    @property
    def group_bytes(self) -> int:
        return CODE_BYTES[self.kind]


@dataclass(frozen=True, slots=True)
class Packed:
    """How eight rows lie interleaved so that decode streams them straight through, and the kernels that know it.

    A unit is eight rows times `columns`: `head` bytes, groups of 32 columns (codes, then `rest` bytes), `tail` bytes. Without
    codes, in a plain format, a unit is one column in `rest` bytes, and activations stay float32; else they are int8.
    tile(words): source of the kernel (p, x, units, y, stride, flags, ahead) on one tile, written in the words of cpu/tiles.py; it
    prefetches weights `ahead` bytes ahead. pack(words): source of (src, row_bytes, rows, dst, units), in the words of
    cpu/simd.py. expand(words): source of (p, lane, out, units), which writes row `lane` of eight as float32, bit by bit
    `dequantize`. panels: whether many tokens multiply sixteen rows at once (cpu/panels.py), as measured.
    """

    columns: int
    codes: Codes | None
    rest: int
    tile: Callable[[Any], Kernel]
    pack: Callable[[Any], Kernel]
    expand: Callable[[Any], Kernel]
    head: int = 0
    tail: int = 0
    panels: bool = True

    @property
    def activation(self) -> str:
        """What it multiplies with: "q8" (int8 in groups of 32) or "f32"."""
        return "f32" if self.codes is None else "q8"

    @property
    def groups(self) -> int:
        """Groups of a unit."""
        return max(1, self.columns // 32)

    @property
    def unit_bytes(self) -> int:
        codes = 0 if self.codes is None else self.codes.group_bytes
        return self.head + self.groups * (codes + self.rest) + self.tail

    @property
    def fetch_bytes(self) -> int:
        """What one inner iteration reads, to be prefetched."""
        return -(-self.unit_bytes // self.groups)


@dataclass(frozen=True, slots=True)
class Format:
    """A quantised (or plain) number format of GGUF weights.

    name: as ggml spells it. type_id: GGML's number. group_size: values in a group. group_bytes: bytes of one.
    dequantize_groups: u8[n, group_bytes] -> f32[n, group_size], the meaning of the bytes.
    packed: the layout and kernels that the CPU uses.
    """

    name: str
    type_id: int
    group_size: int
    group_bytes: int
    dequantize_groups: Callable[[Bytes], Floats]
    packed: Packed

    def row_bytes(self, width: int) -> int:
        """Bytes of a row of `width` values; `width` is a multiple of group_size."""
        assert width % self.group_size == 0, f"{self.name} needs rows in multiples of {self.group_size}, not {width}"
        return width // self.group_size * self.group_bytes

    def packed_bytes(self, rows: int, width: int) -> int:
        """Bytes of a packed matrix (rows, width); rows are rounded up to a multiple of eight."""
        return -(-rows // 8) * (width // self.packed.columns) * self.packed.unit_bytes

    def dequantize(self, rows: Bytes) -> Floats:
        """Turn rows u8[n, row_bytes] into f32[n, K], bit by bit what ggml's float32 arithmetic gives.

        Scales that are infinite or not a number give values that are; nothing warns.
        """
        count, row_bytes = rows.shape
        assert row_bytes % self.group_bytes == 0, f"{self.name} rows are multiples of {self.group_bytes} bytes"
        groups = rows.reshape(-1, self.group_bytes)
        values = np.empty((len(groups), self.group_size), np.float32)
        with np.errstate(invalid="ignore", over="ignore"):
            step = _VALUES_AT_ONCE // self.group_size
            for start in range(0, len(groups), step):
                part = slice(start, start + step)
                values[part] = self.dequantize_groups(groups[part])
        return values.reshape(count, row_bytes // self.group_bytes * self.group_size)


def split(groups: Bytes, *sizes: int) -> list[Bytes]:
    """Cut u8[n, group_bytes] into its fields, u8[n, size] each; the sizes add up to group_bytes."""
    assert sum(sizes) == groups.shape[1]
    ends = list(itertools.accumulate(sizes))
    return [groups[:, end - size : end] for size, end in zip(sizes, ends, strict=True)]


def f16(field: Bytes) -> Floats:
    """Read u8[n, 2 m] as f32[n, m]: half precision, widened exactly."""
    return np.ascontiguousarray(field).view("<f2").astype(np.float32)


def bits(field: Bytes, width: int) -> Bytes:
    """Cut each byte into 8 / width numbers: u8[n, m] -> u8[n, 8 / width, m], all the lowest bits first."""
    shifts = np.arange(0, 8, width, dtype=np.uint8)[:, None]
    numbers: Bytes = field[:, None, :] >> shifts & np.uint8((1 << width) - 1)
    return numbers
