"""A file's tensors as a builder asks for them: each by name, with the shape that the metadata promise.

Holds no data and knows no architecture. What the file has and no builder asked for is refused too: it is part of a
model that the builder does not describe, and leaving it out would give wrong words.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from ..errors import ModelFileError, UnsupportedError
from ..gguf_header import quote

UNUSED = (".attn_rot_embd", ".attn_rot_embd.weight", ".rotary_emb.inv_freq")
"""Ends of names that old converters left in: frequencies of rope, which the metadata give too."""


_IN_PLACE = {
    "attn_q.weight": "attn_qkv.weight",
    "attn_kv_b.weight": "attn_k_b.weight",
    "ffn_gate_exps.weight": "ffn_gate_up_exps.weight",
    "ssm_beta.weight": "ssm_ba.weight",
}
"""Ends of names of tensors and of what some files keep in their place."""


class HasShape(Protocol):
    """What is asked of a tensor: `shape`, outermost first; a matrix is (N, K)."""

    @property
    def shape(self) -> tuple[int, ...]: ...


class Weights:
    """Hands out the names of tensors, checked. Raises ModelFileError naming the tensor."""

    def __init__(self, tensors: Mapping[str, HasShape]) -> None:
        self._tensors = tensors
        self._asked: set[str] = set()
        self._absent: set[str] = set()
        self._skipped: set[str] = set()
        self._biased: tuple[str, ...] = ()

    def promise_biases(self, *names: str) -> None:
        """Say of which tensors ("attn_q", "output_norm") all files of the family have a bias; others may have one."""
        self._biased = names

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
            raise ModelFileError(f"the file lacks the tensor {name}{self._hint(name)}")
        return found

    def optional(self, name: str, *shape: int) -> str | None:
        """The name, or None if the file has no such tensor; a tensor of another shape is an error."""
        if name not in self._tensors:
            self._absent.add(name)
            return None
        found = tuple(int(n) for n in self._tensors[name].shape)
        if found != shape:
            raise ModelFileError(f"tensor {name} has the shape {found}, but the metadata ask for {shape}")
        self._asked.add(name)
        return name

    def bias(self, name: str, *shape: int) -> str | None:
        """The bias of the tensor `name`.weight, or None if it has none and need not have one."""
        found = self.require if name.rpartition(".")[2] in self._biased else self.optional
        return found(f"{name}.bias", *shape)

    def allow(self, name: str, *shape: int) -> None:
        """Count a tensor of that shape as used, if there is one: a layer that does not need it may have it."""
        self.optional(name, *shape)
        self._absent.discard(name)

    def _hint(self, name: str) -> str:
        """Why a tensor may be missing, as far as the names of the others tell."""
        if not self._tensors:
            return "; this file holds no tensors at all, only metadata or a vocabulary"
        each = name.replace("_exps.weight", ".0.weight")
        if each != name and each in self._tensors:
            return (
                f"; it keeps each expert in a tensor of its own ({each}), as converters did before April 2024:"
                " convert the model again"
            )
        layer, end = _split(name)
        if end in _IN_PLACE:
            return f", and {layer}{_IN_PLACE[end]}, which may stand in its place"
        if not any(other.startswith("blk.") for other in self._tensors):
            return f"; its tensors have other names ({quote(next(iter(self._tensors)))}): llama.cpp's converter gives GGUF's"
        return ""

    def skip(self, prefix: str) -> None:
        """Count the tensors whose names begin so as used: parts that are not needed for the logits."""
        self._skipped.update(name for name in self._tensors if name.startswith(prefix))

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
        """Refuse a file with tensors nobody asked for, and one that lacks in a layer what it has in others."""
        in_a_layer = {_split(name)[1]: name for name in sorted(self._asked, reverse=True)}
        for name in sorted(self._absent):
            layer, end = _split(name)
            if layer and end in in_a_layer and not end.endswith(".scale"):  # that goes with a layer's number format
                raise ModelFileError(f"the file lacks the tensor {name}, though it has {in_a_layer[end]}")
        unasked = set(self._tensors) - self._asked - self._skipped
        extra = sorted(name for name in unasked if not name.endswith(UNUSED))
        if extra:
            more = f" (and {len(extra) - 1} more)" if len(extra) > 1 else ""
            raise UnsupportedError(
                f"tensor {quote(extra[0])}{more} is not part of the {architecture} architecture as edgellm knows it;"
                " the model is a variant that would come out wrong"
            )


def _split(name: str) -> tuple[str, str]:
    """Cut blk.3.attn_q.bias into blk.3. and attn_q.bias; a name that is of no layer into nothing and itself."""
    end = name.find(".", len("blk.")) + 1 if name.startswith("blk.") else 0
    return name[:end], name[end:]
