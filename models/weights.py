"""A file's tensors as a builder asks for them: each by name, with the shape that the metadata promise.

Holds no data and knows no architecture. What the file has and no builder asked for is refused too: it is part of a
model that the builder does not describe, and leaving it out would give wrong words.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from ..errors import ModelFileError, UnsupportedError
from ..gguf_header import quote


class HasShape(Protocol):
    """What is asked of a tensor: `shape`, outermost first; a matrix is (N, K)."""

    @property
    def shape(self) -> tuple[int, ...]: ...


class Weights:
    """Hands out the names of tensors, checked. Raises ModelFileError naming the tensor."""

    def __init__(self, tensors: Mapping[str, HasShape]) -> None:
        self._tensors = tensors
        self._asked: set[str] = set()

    def has(self, name: str) -> bool:
        """Whether the file has such a tensor, of whatever shape."""
        return name in self._tensors

    def rank(self, name: str) -> int:
        """How many dimensions the tensor has; 0 if there is none."""
        return len(self._tensors[name].shape) if name in self._tensors else 0

    def require(self, name: str, *shape: int) -> str:
        """The name again, if the file has such a tensor of that shape."""
        found = self.optional(name, *shape)
        if found is None:
            hint = "" if self._tensors else "; this file holds no tensors at all, only metadata or a vocabulary"
            raise ModelFileError(f"the file lacks the tensor {name}{hint}")
        return found

    def optional(self, name: str, *shape: int) -> str | None:
        """The name, or None if the file has no such tensor; a tensor of another shape is an error."""
        if name not in self._tensors:
            return None
        found = tuple(int(n) for n in self._tensors[name].shape)
        if found != shape:
            raise ModelFileError(f"tensor {name} has the shape {found}, but the metadata ask for {shape}")
        self._asked.add(name)
        return name

    def ignore(self, prefix: str) -> None:
        """Let the file have tensors whose names begin so: what this network does without."""
        self._asked.update(name for name in self._tensors if name.startswith(prefix))

    def vocab_size(self, metadata: Mapping[str, Any], table: str) -> int:
        """Rows of the embedding `table`, which must be as many as the vocabulary has tokens, if the file has one."""
        tokens = metadata.get("tokenizer.ggml.tokens")
        if tokens is not None:
            if isinstance(tokens, (bool, int, float, str)):
                raise ModelFileError("tokenizer.ggml.tokens must be a list of tokens; the file is damaged")
            return len(tokens)
        shape = self._tensors[table].shape if table in self._tensors else ()
        return int(shape[0]) if len(shape) == 2 else 0

    def check_all_used(self, architecture: str) -> None:
        """Refuse a file with tensors nobody asked for."""
        extra = sorted(set(self._tensors) - self._asked)
        if extra:
            more = f" (and {len(extra) - 1} more)" if len(extra) > 1 else ""
            raise UnsupportedError(
                f"tensor {quote(extra[0])}{more} is not part of the {architecture} architecture as edgellm knows it;"
                " the model is a variant that would come out wrong"
            )
