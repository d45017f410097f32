"""Measure a model of the shape of Qwen 3.5 at 0.6B, random weights, beside llama.cpp: layers with a state and a few of attention.

    python tools/bench_hybrid.py [--peer-python PATH] [--vocabulary MODEL] [--model FILE] [options of compare_peers.py]

Writes the model as llama.cpp's quantiser would at Q4_K_M (attn_qkv becomes Q5_K), 0.4 GB, to FILE or for the time of the run,
then does what compare_peers.py does with a model: a table, and one JSON line. Random weights compute nonsense at the speed of
the real thing. The goal is a decode ratio of 1.2. Exit code 2: something is missing.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import compare_peers
import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter
from random_weights import get_row_bytes
from synthesise import ALIGNMENT, Tensor, choose_format, copy_vocabulary, write_tensor

GOAL = 1.2


@dataclass(frozen=True)
class Hybrid:
    """Sizes of a model: those of Qwen 3.5 0.8B, but for the vocabulary and a somewhat wider feed-forward network."""

    layers: int = 24
    interval: int = 4
    hidden: int = 1024
    ffn: int = 4096
    heads: int = 8
    kv_heads: int = 2
    head_dim: int = 256
    key_heads: int = 16
    value_heads: int = 16
    state: int = 128
    taps: int = 4

    def is_recurrent(self, layer: int) -> bool:
        """Whether the layer has a state instead of attention."""
        return (layer + 1) % self.interval != 0


def list_tensors(shape: Hybrid, vocab: int) -> Iterator[Tensor]:
    """Yield the tensors in file order."""
    q, kv, values = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim, shape.value_heads * shape.state
    channels = 2 * shape.key_heads * shape.state + values

    def matrix(name: str, rows: int, length: int, layer: int = 0) -> Tensor:
        form = "Q5_K" if name == "attn_qkv" else choose_format("Q4_K_M", name, layer, shape.layers, length)
        form = "Q5_0" if form == "Q5_K" and length % 256 else form
        return f"blk.{layer}.{name}.weight", (rows, length), form

    yield "token_embd.weight", (vocab, shape.hidden), choose_format("Q4_K_M", "token_embd", 0, 1, shape.hidden)
    for i in range(shape.layers):
        yield f"blk.{i}.attn_norm.weight", (shape.hidden,), "F32"
        if shape.is_recurrent(i):
            yield matrix("attn_qkv", channels, shape.hidden, i)
            yield matrix("attn_gate", values, shape.hidden, i)
            yield f"blk.{i}.ssm_conv1d.weight", (channels, shape.taps), "F32"
            yield f"blk.{i}.ssm_a", (shape.value_heads,), "F32"
            yield f"blk.{i}.ssm_dt.bias", (shape.value_heads,), "F32"
            yield matrix("ssm_beta", shape.value_heads, shape.hidden, i)
            yield matrix("ssm_alpha", shape.value_heads, shape.hidden, i)
            yield f"blk.{i}.ssm_norm.weight", (shape.state,), "F32"
            yield matrix("ssm_out", shape.hidden, values, i)
        else:
            yield matrix("attn_q", 2 * q, shape.hidden, i)
            yield matrix("attn_k", kv, shape.hidden, i)
            yield matrix("attn_v", kv, shape.hidden, i)
            yield f"blk.{i}.attn_q_norm.weight", (shape.head_dim,), "F32"
            yield f"blk.{i}.attn_k_norm.weight", (shape.head_dim,), "F32"
            yield matrix("attn_output", shape.hidden, q, i)
        yield f"blk.{i}.post_attention_norm.weight", (shape.hidden,), "F32"
        yield matrix("ffn_gate", shape.ffn, shape.hidden, i)
        yield matrix("ffn_up", shape.ffn, shape.hidden, i)
        yield matrix("ffn_down", shape.hidden, shape.ffn, i)
    yield "output_norm.weight", (shape.hidden,), "F32"


def add_metadata(writer: GGUFWriter, shape: Hybrid) -> None:
    """Write the keys that llama.cpp's converter writes for a Qwen 3.5."""
    writer.add_type("model")
    writer.add_name("Synthetic hybrid")
    writer.add_block_count(shape.layers)
    writer.add_context_length(32768)
    writer.add_embedding_length(shape.hidden)
    writer.add_feed_forward_length(shape.ffn)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_key_length(shape.head_dim)
    writer.add_value_length(shape.head_dim)
    writer.add_rope_dimension_count(shape.head_dim // 4)
    writer.add_rope_dimension_sections([11, 11, 10, 0])
    writer.add_rope_freq_base(1e7)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_ssm_conv_kernel(shape.taps)
    writer.add_ssm_state_size(shape.state)
    writer.add_ssm_group_count(shape.key_heads)
    writer.add_ssm_time_step_rank(shape.value_heads)
    writer.add_ssm_inner_size(shape.value_heads * shape.state)
    writer.add_uint32("qwen35.full_attention_interval", shape.interval)
    writer.add_quantization_version(2)


def write_model(path: Path, vocabulary: Path, shape: Hybrid) -> None:
    """Write a model with the vocabulary of another file."""
    from edgellm.gguf import open_gguf

    writer = GGUFWriter(path, "qwen35")
    with open_gguf(vocabulary) as source:
        vocab = copy_vocabulary(writer, source)
    add_metadata(writer, shape)
    tensors = list(list_tensors(shape, vocab))
    for name, sizes, form in tensors:
        nbytes = get_row_bytes(form, sizes[-1]) * (sizes[0] if len(sizes) == 2 else 1)
        writer.add_tensor_info(name, sizes, np.dtype(np.float32), nbytes, GGMLQuantizationType[form])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    rng = np.random.default_rng(0)
    with open(path, "ab") as file:
        file.write(bytes(-file.tell() % ALIGNMENT))
        for tensor in tensors:
            if tensor[0].endswith("ssm_a"):  # states decay, whatever the file
                file.write((-rng.uniform(0.1, 4.0, tensor[1])).astype(np.float32).tobytes())
                file.write(bytes(-file.tell() % ALIGNMENT))
            else:
                write_tensor(file, tensor, rng)


def main(argv: Sequence[str] | None = None) -> int:
    """Write the model, compare. Return 2 where something is missing."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, add_help=False
    )
    parser.add_argument("-h", "--help", action="help", help="show this text")
    parser.add_argument("--vocabulary", default="smollm2", metavar="MODEL", help="whose vocabulary (default: smollm2)")
    parser.add_argument("--model", type=Path, metavar="FILE", help="where the model is kept; used if it is there")
    args, rest = parser.parse_known_args(argv)
    from edgellm import EdgeLLMError, hub

    with tempfile.TemporaryDirectory() as folder:
        path = args.model or Path(folder) / "hybrid.gguf"
        try:
            if not path.exists():
                write_model(path, Path(hub.resolve(args.vocabulary)), Hybrid())
        except EdgeLLMError as error:
            print(f"bench_hybrid: {error}", file=sys.stderr)
            return 2
        return compare_peers.main([str(path), *rest])


if __name__ == "__main__":
    sys.exit(main())
