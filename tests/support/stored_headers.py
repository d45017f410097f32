"""Metadata and shapes of the stored models of tests/data/architectures/, to be changed and built again without any file."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import reference_models as stored

from edgellm import models
from edgellm.gguf import open_gguf
from edgellm.kernels.ops import Program, Rope

NAMES = stored.NAMES


@dataclass
class Shape:
    """What a builder asks of a tensor."""

    shape: tuple[int, ...]


@dataclass
class Header:
    """What a builder sees of a file."""

    metadata: dict[str, Any]
    shapes: dict[str, tuple[int, ...]]

    @property
    def architecture(self) -> str:
        return str(self.metadata["general.architecture"])

    def build(self) -> Program:
        tensors = {name: Shape(shape) for name, shape in self.shapes.items()}
        return models.get(self.architecture).build(self.metadata, tensors)

    def set(self, **keys: Any) -> Header:
        """A copy with other values after "architecture."; None takes a key out."""
        metadata = self.metadata | {f"{self.architecture}.{key}": value for key, value in keys.items()}
        return Header({key: value for key, value in metadata.items() if value is not None}, dict(self.shapes))

    def reshape(self, shapes: Mapping[str, tuple[int, ...] | None]) -> Header:
        """A copy with other tensors; None takes one out."""
        all_shapes = self.shapes | dict(shapes)
        return Header(dict(self.metadata), {n: shape for n, shape in all_shapes.items() if shape is not None})


@cache
def _read(name: str) -> Header:
    with tempfile.TemporaryDirectory() as folder, open_gguf(stored.unpack(name, Path(folder))) as file:
        shapes = {tensor: tuple(int(n) for n in what.shape) for tensor, what in file.tensors.items()}
        # Texts are read while the file is open.
        plain = {key: list(value) if hasattr(value, "raw_list") else value for key, value in file.metadata.items()}
        return Header(plain, shapes)


def read(name: str) -> Header:
    """The header of a stored model, one's own to change."""
    return _read(name).set()


def ropes(program: Program) -> Iterator[tuple[Rope, int | None]]:
    """Each rotation of a program, with the window of the attention that it turns for."""
    waiting: list[Rope] = []
    for op in program.ops:
        if op.name == "rope":
            waiting.append(op.attributes["rope"])
        elif op.name == "attention":
            window = program.cache_layers[op.attributes["layer"]].window
            yield from ((rope, window) for rope in waiting)
            waiting.clear()


def with_head_size(name: str, head_dim: int) -> Header:
    """The same model with heads of another size, its tensors' shapes with them: what is a multiple of the old size grows."""
    header = read(name)
    arch, keys = header.architecture, header.metadata
    heads, hidden = keys[f"{arch}.attention.head_count"], keys[f"{arch}.embedding_length"]
    old = keys.get(f"{arch}.attention.key_length", hidden // heads)
    shapes: dict[str, tuple[int, ...] | None] = {}
    for tensor, shape in header.shapes.items():
        part = ".".join(tensor.split(".")[2:])
        if part == "attn_output.weight":
            shapes[tensor] = (shape[0], shape[1] // old * head_dim)
        elif part.startswith(("attn_q.", "attn_k.", "attn_v.", "attn_qkv.", "attn_q_norm.", "attn_k_norm.")):
            if len(shape) == 1 or "norm" not in part:
                shapes[tensor] = (shape[0] // old * head_dim, *shape[1:])
            else:  # StableLM's norms: each head its own
                shapes[tensor] = (shape[0], head_dim)
        elif tensor.startswith(("rope_factors_", "rope_freqs.")):
            shapes[tensor] = (head_dim // 2,)
    sizes = {"attention.key_length": head_dim, "attention.value_length": head_dim, "rope.dimension_count": head_dim}
    return header.set(**sizes).reshape(shapes)
