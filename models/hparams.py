"""Reads a file's `{architecture}.xxx` metadata: every value is checked here once, so that builders can trust it.

Knows the keys that architectures share (heads, rope); an architecture's own keys stay in its file. A missing or
senseless value is a ModelFileError, a sound one that edgellm does not know an UnsupportedError; both name the key.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ..errors import ModelFileError, UnsupportedError
from ..kernels.ops import Rope

MAX_LAYERS = 4096


class HParams:
    """The metadata of one architecture. Keys are given without the `{architecture}.` in front."""

    def __init__(self, metadata: Mapping[str, Any], architecture: str) -> None:
        self._metadata = metadata
        self.architecture = self._prefix = architecture

    def get(self, key: str, default: Any = None) -> Any:
        """The value as the file has it, unchecked."""
        return self._metadata.get(f"{self._prefix}.{key}", default)

    def integer(self, key: str, default: int | None = None, low: int = 1, high: int = 2**63 - 1) -> int:
        """A whole number from `low` to `high`; without a default the key must be there."""
        value = self._require(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self.bad(key, value, f"a whole number from {low} to {high}")
        return value

    def num_layers(self) -> int:
        """How many layers; bounded, because builders make lists of that length."""
        return self.integer("block_count", high=MAX_LAYERS)

    def number(self, key: str, default: float | None = None, above: float = 0.0) -> float:
        """A finite number greater than `above`; without a default the key must be there."""
        value = self._require(key, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not above < value < math.inf:
            raise self.bad(key, value, f"a number above {above:g}")
        return float(value)

    def boolean(self, key: str, default: bool) -> bool:
        """Yes or no."""
        value = self.get(key, default)
        if not isinstance(value, bool):
            raise self.bad(key, value, "true or false")
        return value

    def number_or_zero(self, key: str) -> float:
        """A finite number greater than 0; 0 if the file says so, or nothing."""
        value = self.get(key)
        return 0.0 if value is None or (isinstance(value, (int, float)) and value == 0) else self.number(key)

    def text(self, key: str, default: str) -> str:
        """A string."""
        value = self.get(key, default)
        if not isinstance(value, str):
            raise self.bad(key, value, "a text")
        return value

    def per_layer(self, key: str, num_layers: int, default: list[int] | None = None, low: int = 1) -> list[int]:
        """A whole number of at least `low` for each layer; the file may give one for all."""
        value = self.get(key)
        if value is None and default is not None:
            return default
        if not isinstance(value, np.ndarray):
            return [self.integer(key, low=low)] * num_layers
        if value.dtype.kind not in "iu" or len(value) != num_layers or (value < low).any():
            raise self.bad(key, value, f"{num_layers} whole numbers of at least {low}, one for each layer")
        return [int(n) for n in value]

    def refuse(self, key: str, what: str) -> None:
        """Refuse the file if `key` holds anything but zero: it switches on `what`."""
        value = self.get(key)
        if isinstance(value, np.ndarray) or value:
            message = f"{self._prefix} models with {what} are not supported ({self._prefix}.{key} = {show(value)})"
            raise UnsupportedError(message)

    def kv_heads(self, num_layers: int, num_heads: int, low: int = 1) -> list[int]:
        """Of each layer, a divisor of num_heads; num_heads unless the file says so. low: 0 if some are not attention."""
        kv_heads = self.per_layer("attention.head_count_kv", num_layers, [num_heads] * num_layers, low)
        for count in kv_heads:
            if count and num_heads % count:
                raise self.bad("attention.head_count_kv", count, f"a divisor of attention.head_count, {num_heads}")
        return kv_heads

    def head_dim(self, hidden_size: int, num_heads: int) -> int:
        """Width of a head: what the file says, else hidden_size / num_heads. Keys and values share it."""
        head_dim = self.integer("attention.key_length", max(1, hidden_size // num_heads))
        value_length = self.integer("attention.value_length", head_dim)
        if value_length != head_dim:
            raise UnsupportedError(
                f"{self._prefix} models with values of another width than keys are not supported"
                f" ({self._prefix}.attention.value_length is {value_length}, key_length {head_dim})"
            )
        return head_dim

    def local_rope(self, full: Rope, base: float | None = None, is_scaled: bool = True) -> Rope:
        """How positions turn heads in layers with a window, which may have a base of their own: `base` where a file is silent.

        base: None: that of the others. is_scaled: whether the scaling for long contexts is theirs too.
        """
        base = self.number("rope.freq_base_swa", full.base if base is None else base, above=1.0)
        rope = replace(full, base=base)
        return rope if is_scaled else replace(rope, scaling="none", factor=1.0, yarn_attn_factor=1.0)

    def rope(self, head_dim: int, pairs: str, factors: str | None = None) -> Rope:
        """How positions turn heads, with the scaling for long contexts that the file asks for."""
        from .rope import read_rope

        return read_rope(self, head_dim, pairs, factors)

    def _require(self, key: str, default: Any) -> Any:
        value = self.get(key, default)
        if value is None:
            raise ModelFileError(f"the file lacks {self._prefix}.{key}, which this architecture needs")
        return value

    def bad(self, key: str, value: Any, wanted: str) -> ModelFileError:
        """The error of a value that is not what is wanted."""
        return ModelFileError(f"{self._prefix}.{key} is {show(value)}, but must be {wanted}")


def show(value: Any) -> str:
    """A value as a message shows it: one line, not long."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else f"{text[:57]}..."
