"""Write tiny random models that look like what llama.cpp's converter makes of real ones, in any format.

A tensor's values depend on the seed and its name only: the same model in another format holds the same weights, rounded
(the K formats aside, which hold random codes: the gguf package cannot quantise to them).
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType, GGUFValueType, GGUFWriter, quants
from numpy.typing import NDArray
from random_weights import get_row_bytes, make_random
from tiny_vocabulary import make_bpe, make_spm

CAN_QUANTISE = ("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0")
NOT_FOR_WEIGHTS = "Q8_K"  # ggml keeps activations in it: tests of what is not supported use it, all zeros


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of a model."""

    arch: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int


def write_tiny(
    path: str | Path,
    arch: str = "llama",
    *,
    layers: int = 2,
    hidden: int = 64,
    heads: int = 4,
    kv_heads: int = 2,
    head_dim: int | None = None,
    ffn: int = 96,
    vocab: int = 128,
    context: int = 256,
    window: int = 8,
    formats: str | Mapping[str, str] = "F32",
    tied: bool = True,
    rope: Mapping[str, Any] | None = None,
    rope_factors: Collection[float] | None = None,
    biases: bool = False,
    tokenizer: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    tensors: Mapping[str, NDArray[np.float32]] | None = None,
    drop: Collection[str] = (),
    seed: int = 0,
) -> Path:
    """Write a random "llama" or "gemma3" model and return its path.

    formats: a format for all matrices, or {pattern of tensor names: format, "default": format}; vectors stay F32.
    rope: keys below `{arch}.rope.`, such as {"freq_base": 5e5, "scaling.type": "yarn", "scaling.factor": 4.0}.
    rope_factors: f32[head_dim / 2], written as rope_freqs.weight.
    tokenizer: "bpe" (the default of llama) or "spm" (of gemma3).
    metadata and tensors replace or add entries; drop leaves out keys and tensors by name.
    Raises ValueError where a row does not fit a format: K formats need hidden, ffn and heads * head_dim to be n * 256.
    """
    shape = Shape(arch, layers, hidden, heads, kv_heads, head_dim or hidden // heads, ffn, vocab)
    keys = _make_metadata(shape, context, window, explicit_heads=head_dim is not None)
    keys |= make_spm(vocab) if (tokenizer or ("spm" if arch == "gemma3" else "bpe")) == "spm" else make_bpe(vocab)
    keys |= {f"{arch}.rope.{key}": value for key, value in (rope or {}).items()} | dict(metadata or {})
    values = {name: _make_values(name, size, seed) for name, size in _list_tensors(shape, tied, biases).items()}
    if rope_factors is not None:
        values["rope_freqs.weight"] = np.array(list(rope_factors), np.float32)
    values |= tensors or {}
    return write_model(
        path,
        {key: value for key, value in keys.items() if key not in drop},
        {name: value for name, value in values.items() if name not in drop},
        {"default": formats} if isinstance(formats, str) else formats,
        seed,
    )


def write_model(
    path: str | Path,
    metadata: Mapping[str, Any],
    tensors: Mapping[str, NDArray[np.float32]],
    formats: Mapping[str, str],
    seed: int = 0,
) -> Path:
    """Write any metadata and float32 tensors; `formats` as in write_tiny. Python's types choose those of the file."""
    path = Path(path)
    writer = GGUFWriter(path, "")
    writer.kv_data[0].clear()  # the architecture it writes by itself
    for key, value in metadata.items():
        writer.add_key_value(key, value, _get_value_type(value))
    for name, values in tensors.items():
        form = _get_format(name, values, formats)
        packed = _pack(name, values, form, seed)
        writer.add_tensor(name, packed, raw_dtype=GGMLQuantizationType[form])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _make_metadata(shape: Shape, context: int, window: int, explicit_heads: bool) -> dict[str, Any]:
    arch = shape.arch
    keys: dict[str, Any] = {
        "general.architecture": arch,
        "general.type": "model",
        "general.name": f"Tiny {arch}",
        f"{arch}.block_count": shape.layers,
        f"{arch}.context_length": context,
        f"{arch}.embedding_length": shape.hidden,
        f"{arch}.feed_forward_length": shape.ffn,
        f"{arch}.attention.head_count": shape.heads,
        f"{arch}.attention.head_count_kv": shape.kv_heads,
        f"{arch}.attention.layer_norm_rms_epsilon": 1e-6 if arch == "gemma3" else 1e-5,
        f"{arch}.rope.freq_base": 1e6 if arch == "gemma3" else 1e4,
    }
    if arch == "gemma3" or explicit_heads:
        keys |= {f"{arch}.attention.key_length": shape.head_dim, f"{arch}.attention.value_length": shape.head_dim}
    if arch == "gemma3":
        keys[f"{arch}.attention.sliding_window"] = window
    else:
        keys |= {f"{arch}.rope.dimension_count": shape.head_dim, f"{arch}.vocab_size": shape.vocab}
    return keys | {"general.file_type": 0, "general.quantization_version": 2}


def _list_tensors(shape: Shape, tied: bool, biases: bool) -> dict[str, tuple[int, ...]]:
    """Return name -> shape, (N, K) or (N,), of every tensor in the converter's order."""
    hidden, q, kv = shape.hidden, shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    sizes: dict[str, tuple[int, ...]] = {"token_embd.weight": (shape.vocab, hidden)}
    matrices = {
        "attn_q": (q, hidden),
        "attn_k": (kv, hidden),
        "attn_v": (kv, hidden),
        "attn_output": (hidden, q),
        "ffn_gate": (shape.ffn, hidden),
        "ffn_up": (shape.ffn, hidden),
        "ffn_down": (hidden, shape.ffn),
    }
    norms = {"attn_norm": hidden, "ffn_norm": hidden}
    if shape.arch == "gemma3":
        norms |= {"attn_q_norm": shape.head_dim, "attn_k_norm": shape.head_dim}
        norms |= {"post_attention_norm": hidden, "post_ffw_norm": hidden}
    for i in range(shape.layers):
        sizes |= {f"blk.{i}.{name}.weight": size for name, size in matrices.items()}
        sizes |= {f"blk.{i}.{name}.weight": (size,) for name, size in norms.items()}
        if biases:
            sizes |= {f"blk.{i}.{name}.bias": size[:1] for name, size in matrices.items()}
    sizes["output_norm.weight"] = (hidden,)
    if not tied:
        sizes["output.weight"] = (shape.vocab, hidden)
    return sizes


def _make_values(name: str, size: tuple[int, ...], seed: int) -> NDArray[np.float32]:
    values = _get_generator(name, seed).standard_normal(size, np.float32)
    if len(size) == 1:
        return values * np.float32(0.1) + np.float32(0 if name.endswith(".bias") else 1)
    return values * np.float32(_get_std(name, size))


def _get_std(name: str, size: tuple[int, ...]) -> float:
    # Logits of a spread of two or three: neither flat nor settled. Other matrices keep the size of what passes through.
    return 2.5 / size[1] ** 0.5 if name in ("token_embd.weight", "output.weight") else 1.0 / size[1] ** 0.5


def _get_generator(name: str, seed: int) -> np.random.Generator:
    return np.random.default_rng((seed, zlib.crc32(name.encode())))


def _get_format(name: str, values: NDArray[np.float32], formats: Mapping[str, str]) -> str:
    for pattern, form in formats.items():
        if pattern != "default" and fnmatchcase(name, pattern):
            return form
    return formats.get("default", "F32") if values.ndim > 1 else "F32"


def _pack(name: str, values: NDArray[np.float32], form: str, seed: int) -> NDArray[Any]:
    get_row_bytes(form, values.shape[-1])  # refuses a row that does not fit
    if form in CAN_QUANTISE or form == "MXFP4":  # which keeps the values of stored models exactly
        return quants.quantize(values, GGMLQuantizationType[form])
    rows = values.size // values.shape[-1]
    if form == NOT_FOR_WEIGHTS:
        return np.zeros((rows, get_row_bytes(form, values.shape[-1])), np.uint8)
    return make_random(form, rows, values.shape[-1], _get_std(name, values.shape), _get_generator(name, seed))


def _get_value_type(value: Any) -> GGUFValueType:
    if isinstance(value, bool):
        return GGUFValueType.BOOL
    if isinstance(value, int):
        return GGUFValueType.UINT32 if 0 <= value < 1 << 32 else GGUFValueType.INT64
    if isinstance(value, float):
        return GGUFValueType.FLOAT32
    return GGUFValueType.STRING if isinstance(value, (str, bytes)) else GGUFValueType.ARRAY
