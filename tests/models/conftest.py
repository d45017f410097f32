"""Tiny models made in memory: metadata, shapes and random weights, all of a test's own to change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import reference_models as stored

from edgellm import models
from edgellm.gguf import open_gguf
from edgellm.kernels.ops import Program


@dataclass
class Shape:
    shape: tuple[int, ...]


@dataclass
class TinyFile:
    """What a builder sees of a GGUF file, and values for it."""

    metadata: dict[str, Any]
    shapes: dict[str, tuple[int, ...]]

    def build(self) -> Program:
        tensors = {name: Shape(shape) for name, shape in self.shapes.items()}
        return models.get(self.metadata["general.architecture"]).build(self.metadata, tensors)

    def weights(self, seed: int = 0) -> dict[str, np.ndarray]:
        rng = np.random.default_rng(seed)
        return {n: rng.normal(0, 0.3, s).astype(np.float32) + ("norm" in n) for n, s in self.shapes.items()}


def layer_shapes(i: int, hidden: int, heads: int, kv_heads: int, head_dim: int, ffn: int) -> dict[str, tuple[int, ...]]:
    shapes = {
        "attn_norm": (hidden,),
        "attn_q": (heads * head_dim, hidden),
        "attn_k": (kv_heads * head_dim, hidden),
        "attn_v": (kv_heads * head_dim, hidden),
        "attn_output": (hidden, heads * head_dim),
        "ffn_norm": (hidden,),
        "ffn_gate": (ffn, hidden),
        "ffn_up": (ffn, hidden),
        "ffn_down": (hidden, ffn),
    }
    return {f"blk.{i}.{name}.weight": shape for name, shape in shapes.items()}


def make_llama(**changes: Any) -> TinyFile:
    """O10's model: a head size that is not hidden / heads, and no output.weight. changes: keys after "llama."."""
    metadata: dict[str, Any] = {
        "general.architecture": "llama",
        "tokenizer.ggml.tokens": [str(i) for i in range(29)],
        "llama.block_count": 2,
        "llama.context_length": 128,
        "llama.embedding_length": 48,
        "llama.feed_forward_length": 40,
        "llama.attention.head_count": 4,
        "llama.attention.head_count_kv": 2,
        "llama.attention.key_length": 32,
        "llama.attention.value_length": 32,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.freq_base": 10000.0,
    }
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (29, 48), "output_norm.weight": (48,)}
    for i in range(2):
        shapes |= layer_shapes(i, 48, 4, 2, 32, 40)
    metadata |= {f"llama.{key}": value for key, value in changes.items()}
    return TinyFile({k: v for k, v in metadata.items() if v is not None}, shapes)


def make_gemma3(**changes: Any) -> TinyFile:
    """Seven layers, so that one sees everything, with a window of 8. changes: keys after "gemma3."."""
    metadata: dict[str, Any] = {
        "general.architecture": "gemma3",
        "tokenizer.ggml.tokens": [str(i) for i in range(31)],
        "gemma3.block_count": 7,
        "gemma3.context_length": 128,
        "gemma3.embedding_length": 24,
        "gemma3.feed_forward_length": 20,
        "gemma3.attention.head_count": 2,
        "gemma3.attention.head_count_kv": 1,
        "gemma3.attention.key_length": 16,
        "gemma3.attention.value_length": 16,
        "gemma3.attention.sliding_window": 8,
        "gemma3.attention.layer_norm_rms_epsilon": 1e-6,
        "gemma3.rope.freq_base": 1e6,
    }
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (31, 24), "output_norm.weight": (24,)}
    for i in range(7):
        shapes |= layer_shapes(i, 24, 2, 1, 16, 20)
        shapes |= {f"blk.{i}.{name}.weight": (24,) for name in ("post_attention_norm", "post_ffw_norm")}
        shapes |= {f"blk.{i}.{name}.weight": (16,) for name in ("attn_q_norm", "attn_k_norm")}
    metadata |= {f"gemma3.{key}": value for key, value in changes.items()}
    return TinyFile({k: v for k, v in metadata.items() if v is not None}, shapes)


@pytest.fixture
def llama() -> Callable[..., TinyFile]:
    return make_llama


@pytest.fixture
def gemma3() -> Callable[..., TinyFile]:
    return make_gemma3


@pytest.fixture
def converted(tmp_path: Path) -> Callable[..., TinyFile]:
    """A stored model that llama.cpp's converter wrote, to be changed: its name, and keys after "architecture."."""

    def read(name: str, **changes: Any) -> TinyFile:
        with open_gguf(stored.unpack(name, tmp_path)) as file:
            metadata, shapes = dict(file.metadata), {n: tuple(t.shape) for n, t in file.tensors.items()}
        architecture = metadata["general.architecture"]
        metadata |= {f"{architecture}.{key}": value for key, value in changes.items()}
        return TinyFile({k: v for k, v in metadata.items() if v is not None}, shapes)

    return read
