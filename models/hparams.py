"""Reads a file's `{architecture}.xxx` metadata: every value is checked here once, so that builders can trust it.

Knows the keys that architectures share (heads, rope); an architecture's own keys stay in its file. A missing or
senseless value is a ModelFileError, a sound one that edgellm does not know an UnsupportedError; both name the key.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
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
            raise self._bad(key, value, f"a whole number from {low} to {high}")
        return value

    def num_layers(self) -> int:
        """How many layers; bounded, because builders make lists of that length."""
        return self.integer("block_count", high=MAX_LAYERS)

    def number(self, key: str, default: float | None = None, above: float = 0.0) -> float:
        """A finite number greater than `above`; without a default the key must be there."""
        value = self._require(key, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not above < value < math.inf:
            raise self._bad(key, value, f"a number above {above:g}")
        return float(value)

    def boolean(self, key: str, default: bool) -> bool:
        """Yes or no."""
        value = self.get(key, default)
        if not isinstance(value, bool):
            raise self._bad(key, value, "true or false")
        return value

    def number_or_zero(self, key: str) -> float:
        """A finite number greater than 0; 0 if the file says so, or nothing."""
        value = self.get(key)
        return 0.0 if value is None or (isinstance(value, (int, float)) and value == 0) else self.number(key)

    def text(self, key: str, default: str) -> str:
        """A string."""
        value = self.get(key, default)
        if not isinstance(value, str):
            raise self._bad(key, value, "a text")
        return value

    def per_layer(self, key: str, num_layers: int, default: list[int] | None = None) -> list[int]:
        """A whole number of at least 1 for each layer; the file may give one for all."""
        value = self.get(key)
        if value is None and default is not None:
            return default
        if not isinstance(value, np.ndarray):
            return [self.integer(key)] * num_layers
        if value.dtype.kind not in "iu" or len(value) != num_layers or (value < 1).any():
            raise self._bad(key, value, f"{num_layers} whole numbers of at least 1, one for each layer")
        return [int(n) for n in value]

    def refuse(self, key: str, what: str) -> None:
        """Refuse the file if `key` holds anything but zero: it switches on `what`."""
        value = self.get(key)
        if isinstance(value, np.ndarray) or value:
            message = f"{self._prefix} models with {what} are not supported ({self._prefix}.{key} = {_show(value)})"
            raise UnsupportedError(message)

    def kv_heads(self, num_layers: int, num_heads: int) -> list[int]:
        """Key and value heads of each layer, a divisor of num_heads; num_heads unless the file says otherwise."""
        kv_heads = self.per_layer("attention.head_count_kv", num_layers, [num_heads] * num_layers)
        for count in kv_heads:
            if num_heads % count:
                raise self._bad("attention.head_count_kv", count, f"a divisor of attention.head_count, {num_heads}")
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

    def rope(self, head_dim: int, pairs: str, factors: str | None = None) -> Rope:
        """How positions turn heads, with the scaling for long contexts that the file asks for."""
        dim = self.integer("rope.dimension_count", head_dim)
        if dim > head_dim or dim % 2:
            raise self._bad("rope.dimension_count", dim, f"even and at most the head's {head_dim}")
        factor = self.number("rope.scaling.factor", self.number("rope.scale_linear", 1.0))
        scaling = self.text("rope.scaling.type", "linear" if factor != 1.0 else "none")
        base = self.number("rope.freq_base", 10000.0, above=1.0)
        attn_factor = self.number("rope.scaling.attn_factor", 1.0)
        if scaling in ("none", "linear") or (scaling == "longrope" and factors is not None):
            factor = factor if scaling == "linear" else 1.0
            scaling = scaling if scaling == "linear" else "none"
            return Rope(dim, base, pairs, scaling, factor, yarn_attn_factor=attn_factor, factors=factors)
        if scaling != "yarn":
            raise UnsupportedError(
                f"rope scaling of the type {_show(scaling)} ({self._prefix}.rope.scaling.type) is not supported;"
                " edgellm knows none, linear and yarn"
            )
        # What the magnitude is divided by again (DeepSeek's mscale_all_dim; mscale itself is 1 in every file that says so).
        attn_factor /= 1.0 + 0.1 * self.number_or_zero("rope.scaling.yarn_log_multiplier") * math.log(max(1.0, factor))
        return Rope(
            dim=dim,
            base=base,
            pairs=pairs,
            scaling="yarn",
            factor=factor,
            original_context=self.integer("rope.scaling.original_context_length", self.get("context_length")),
            yarn_ext_factor=self.number("rope.scaling.yarn_ext_factor", 1.0),
            yarn_attn_factor=attn_factor,
            yarn_beta_fast=self.number("rope.scaling.yarn_beta_fast", 32.0),
            yarn_beta_slow=self.number("rope.scaling.yarn_beta_slow", 1.0),
            factors=factors,
        )

    def _require(self, key: str, default: Any) -> Any:
        value = self.get(key, default)
        if value is None:
            raise ModelFileError(f"the file lacks {self._prefix}.{key}, which this architecture needs")
        return value

    def _bad(self, key: str, value: Any, wanted: str) -> ModelFileError:
        return ModelFileError(f"{self._prefix}.{key} is {_show(value)}, but must be {wanted}")


def _show(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else f"{text[:57]}..."
