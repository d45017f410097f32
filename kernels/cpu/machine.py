"""What tapes are written for: the shape of a step, and everything with an address that records point to.

Knows no op. Next hop: `lower.py` and `lower_rows.py` write the records.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ..ops import CacheLayer, Op
from .weights import Weights


@dataclass(frozen=True, slots=True)
class Shape:
    """How activations are multiplied. rows: of an activation tile, 1, 2 or 4. panels: with weights unpacked first."""

    rows: int
    panels: bool


@dataclass(frozen=True, slots=True)
class Place:
    """Where a buffer lies; stride: bytes of an f32 row, or groups of 32 of a quantised one."""

    address: int
    stride: int


@dataclass(frozen=True)
class CacheGroup:
    """Layers that share block tables and tasks.

    where: i64[T, 3], see tasks.py. columns: (kept, ring) of the tables. views: of tasks and where, quicker to write one by one.
    """

    tasks: NDArray[np.int64]
    where: NDArray[np.int64]
    columns: tuple[int, int]
    block_bytes: int

    @cached_property
    def views(self) -> tuple[memoryview, memoryview]:
        return self.tasks.data, self.where.data


@dataclass(frozen=True, slots=True)
class ExpertTable:
    """Which row of activations is whose, for the layer that is on: see `sort_rows` in experts.py. All layers share it."""

    slots: NDArray[np.int64]
    rows: NDArray[np.int64]
    places: NDArray[np.int64]
    counts: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Machine:
    """Everything with an address that records point to. parts: int8 rows that a row of activations becomes (2: precise)."""

    kernels: Mapping[str, int]
    threads: int
    parts: int
    places: Mapping[int, Place]
    weights: Weights
    rope_table: Callable[[Op], NDArray[np.float32]]
    layers: tuple[CacheLayer, ...]
    layer_group: tuple[int, ...]
    groups: tuple[CacheGroup, ...]
    cache_address: Callable[[int], tuple[int, int]]
    cache_formats: tuple[str, str]
    partials: NDArray[np.uint8]
    expert_table: ExpertTable | None = None
