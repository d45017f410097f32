"""Write a big random model in the shape of a real one, for benchmarks: python tools/synthesise.py out.gguf --help

It computes nonsense at the speed and memory of the real thing. The vocabulary is copied from a GGUF file, because speed
depends on its size. Streams: memory stays at a few tens of megabytes. The default shape is that of Llama 3.2 1B.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFValueType, GGUFWriter
from random_weights import SCALES, get_row_bytes, make_random

from edgellm.errors import EdgeLLMError
from edgellm.gguf import GGUFFile, StringArray, open_gguf

MIXTURES = ("Q4_K_M",)
CHUNK_VALUES = 1 << 22
ALIGNMENT = 32

Tensor = tuple[str, tuple[int, ...], str]  # name, shape outermost first, format


def choose_format(mixture: str, name: str, layer: int, layers: int, row_length: int) -> str:
    """Return the format llama.cpp's quantiser gives a matrix. A tied embedding counts as the output matrix."""
    if mixture in ("F32", "F16", "BF16", "Q8_0"):
        return mixture
    if name in ("token_embd", "output"):
        wanted = "Q6_K"
    elif mixture == "Q4_K_M":
        # llama.cpp's use_more_bits: the first and last eighth of the layers, and every third one between.
        more = layer < layers // 8 or layer >= 7 * layers // 8 or (layer - layers // 8) % 3 == 2
        wanted = "Q6_K" if more and name in ("attn_v", "ffn_down") else "Q4_K"
    else:
        wanted = mixture
    return wanted if row_length % 256 == 0 or GGML_QUANT_SIZES[GGMLQuantizationType[wanted]][0] < 256 else "Q8_0"


def list_tensors(options: argparse.Namespace, vocab: int) -> Iterator[Tensor]:
    """Yield the tensors in file order."""
    hidden, ffn, layers = options.hidden, options.ffn, options.layers
    q, kv = options.heads * options.head_dim, options.kv_heads * options.head_dim

    def matrix(name: str, rows: int, length: int, layer: int = 0, prefix: str = "") -> Tensor:
        return f"{prefix}{name}.weight", (rows, length), choose_format(options.format, name, layer, layers, length)

    yield matrix("token_embd", vocab, hidden)
    for i in range(layers):
        prefix = f"blk.{i}."
        yield f"{prefix}attn_norm.weight", (hidden,), "F32"
        yield f"{prefix}ffn_norm.weight", (hidden,), "F32"
        yield matrix("attn_q", q, hidden, i, prefix)
        yield matrix("attn_k", kv, hidden, i, prefix)
        yield matrix("attn_v", kv, hidden, i, prefix)
        yield matrix("attn_output", hidden, q, i, prefix)
        if options.experts:
            yield f"{prefix}ffn_gate_inp.weight", (options.experts, hidden), "F32"
        for name, rows, length in (("ffn_gate", ffn, hidden), ("ffn_up", ffn, hidden), ("ffn_down", hidden, ffn)):
            full, shape, form = matrix(name, rows, length, i, prefix)
            if options.experts:
                full, shape = full.replace(name, f"{name}_exps"), (options.experts, *shape)
            yield full, shape, form
    yield "output_norm.weight", (hidden,), "F32"
    if options.untied:
        yield matrix("output", vocab, hidden)


def copy_vocabulary(writer: GGUFWriter, source: GGUFFile) -> int:
    """Copy every tokenizer key; return the number of tokens."""
    for key, value in source.metadata.items():
        if not key.startswith("tokenizer."):
            continue
        if isinstance(value, StringArray):
            writer.add_key_value(key, value.raw_list(), GGUFValueType.ARRAY, GGUFValueType.STRING)
        elif isinstance(value, np.ndarray):
            kind = {"f": GGUFValueType.FLOAT32, "b": GGUFValueType.BOOL}.get(value.dtype.kind, GGUFValueType.INT32)
            writer.add_key_value(key, value.tolist(), GGUFValueType.ARRAY, kind)
        else:
            kinds = {bool: GGUFValueType.BOOL, int: GGUFValueType.UINT32, float: GGUFValueType.FLOAT32}
            writer.add_key_value(key, value, kinds.get(type(value), GGUFValueType.STRING))
    return len(source.require("tokenizer.ggml.tokens"))


def add_metadata(writer: GGUFWriter, options: argparse.Namespace, vocab: int) -> None:
    """Write the keys that llama.cpp's converter writes for a llama."""
    writer.add_type("model")
    writer.add_name(f"Synthetic {options.layers}x{options.hidden} {options.format}")
    writer.add_block_count(options.layers)
    writer.add_context_length(options.context)
    writer.add_embedding_length(options.hidden)
    writer.add_feed_forward_length(options.ffn)
    if options.experts:
        writer.add_expert_count(options.experts)
        writer.add_expert_used_count(options.used_experts)
    writer.add_head_count(options.heads)
    writer.add_head_count_kv(options.kv_heads)
    writer.add_key_length(options.head_dim)
    writer.add_value_length(options.head_dim)
    writer.add_rope_dimension_count(options.head_dim)
    writer.add_rope_freq_base(500000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(vocab)
    writer.add_quantization_version(2)


def write_tensor(file: BinaryIO, tensor: Tensor, rng: np.random.Generator) -> None:
    """Write one tensor's bytes a few rows at a time, and the padding after it."""
    _, shape, form = tensor
    if len(shape) == 1:
        values = rng.standard_normal(shape, np.float32) * np.float32(0.1) + np.float32(1)
        written = file.write(values.tobytes())
    else:
        rows, length = math.prod(shape[:-1]), shape[-1]
        step = max(CHUNK_VALUES // length, 1)
        written = 0
        for start in range(0, rows, step):
            count = min(step, rows - start)
            written += file.write(make_random(form, count, length, 1.0 / length**0.5, rng).tobytes())
    file.write(bytes(-written % ALIGNMENT))


def synthesise(options: argparse.Namespace) -> None:
    """Write the model that `options` describe."""
    writer = GGUFWriter(options.out, "llama")
    with open_gguf(options.vocabulary) as source:
        vocab = copy_vocabulary(writer, source)
    add_metadata(writer, options, vocab)
    tensors = list(list_tensors(options, vocab))
    for name, shape, form in tensors:
        nbytes = get_row_bytes(form, shape[-1]) * math.prod(shape[:-1])
        # uint8 would mean that the shape is in bytes; with any other type it is in values.
        writer.add_tensor_info(name, shape, np.dtype(np.float32), nbytes, GGMLQuantizationType[form])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    rng = np.random.default_rng(options.seed)
    with open(options.out, "ab") as file:
        file.write(bytes(-file.tell() % ALIGNMENT))
        for i, tensor in enumerate(tensors):
            write_tensor(file, tensor, rng)
            print(f"\r{i + 1}/{len(tensors)} tensors, {file.tell() / 1e6:.0f} MB", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Write a big random llama for benchmarks.")
    parser.add_argument("out", type=Path, help="the GGUF file to write")
    parser.add_argument(
        "--vocabulary", type=Path, required=True, metavar="FILE", help="GGUF whose vocabulary is copied"
    )
    parser.add_argument("--format", default="Q4_0", choices=[*MIXTURES, "F32", "F16", "BF16", *SCALES])
    sizes: dict[str, Any] = {"hidden": 2048, "ffn": 8192, "layers": 16, "heads": 32, "kv-heads": 8, "head-dim": 64}
    for name, default in {**sizes, "context": 131072, "seed": 0, "experts": 0, "used-experts": 2}.items():
        parser.add_argument(f"--{name}", type=int, default=default, metavar="N", help=f"default {default}")
    parser.add_argument("--untied", action="store_true", help="write an output matrix of its own")
    options = parser.parse_args(arguments)
    if options.out.exists():
        parser.error(f"{options.out} exists: remove it first")
    return options


def main(arguments: list[str] | None = None) -> int:
    """Run the program; return its exit code."""
    options = parse(arguments)
    try:
        synthesise(options)
    except (EdgeLLMError, ValueError) as error:
        print(f"synthesise: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
