"""Which formats of keys and values cost a model of which size so much that its user should know before it runs.

A table of what was measured and a warning; it refuses nothing. Knows neither cache nor kernels. Next hop: `loader.py`.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from .config import EngineConfig


@dataclass(frozen=True, slots=True)
class Advice:
    """What is known of a format in one role ("k" or "v") below so many parameters."""

    format: str
    role: str
    below_parameters: int
    text: str


TABLE = (
    Advice("q4_h", "k", 10**9, "4-bit keys change the answers of models below 1 billion parameters; q8_0 hardly does"),
    Advice(
        "q4_h", "v", 10**9, "4-bit values change the answers of models below 1 billion parameters; q8_0 hardly does"
    ),
)


class HasShape(Protocol):
    """A tensor as its file describes it."""

    @property
    def shape(self) -> tuple[int, ...]: ...


class HasTensors(Protocol):
    """A model file, as far as its size goes."""

    @property
    def tensors(self) -> Mapping[str, HasShape]: ...


def advise(formats: tuple[str, str], num_parameters: int, table: Iterable[Advice] = TABLE) -> list[str]:
    """Return what to tell the user of a model, nothing for a pair that is known to be sound."""
    chosen = dict(zip("kv", formats, strict=True))
    return [
        f"--cache-type-{advice.role} {advice.format}: {advice.text}"
        for advice in table
        if chosen[advice.role] == advice.format and num_parameters < advice.below_parameters
    ]


def warn(config: EngineConfig, file: HasTensors) -> None:
    """Warn, one line per reason, of a choice that costs this model much."""
    for text in advise(config.cache_formats, count_parameters(file)):
        warnings.warn(text, RuntimeWarning, stacklevel=2)


def count_parameters(file: HasTensors) -> int:
    """Return the number of weights in a file."""
    return sum(math.prod(tensor.shape) for tensor in file.tensors.values())
