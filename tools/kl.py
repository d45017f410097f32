"""Measure accuracy: KL divergence of the CPU backend's logits from the NumPy reference on dequantised weights.

    python tools/kl.py MODEL --ids ids.json [--key NAME] [--one-by-one] [--precise]
    python tools/kl.py MODEL --text "Once upon a time ..." [--cache-type-k q8_0] [--cache-type-v q8_0] [--against-cache f16]

The backend quantises activations and keeps a half-precision cache, the reference does neither, so the mean of
KL(reference || backend) over all positions is what speed costs. For scale: llama.cpp's own figure is about 0.003 nats
on SmolLM2-135M Q4_1 and 0.005 on Gemma 3 270M Q4_K_M. --against-cache compares with the backend itself and another type of
cache instead; with --precise that is the cache's own loss, without it activations that round to other int8 add some 0.004
nats whatever the difference was. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

CHUNK = 512  # prompt tokens at a time
ROWS_AT_ONCE = 32  # float64 rows of a large vocabulary are 2 MB each


class DequantizedWeights(Mapping[str, Floats]):
    """A GGUF file's tensors as float32, each made when asked for, so that memory holds one at a time."""

    def __init__(self, gguf: Any) -> None:
        self._gguf = gguf

    def __getitem__(self, name: str) -> Floats:
        from edgellm.kernels import formats

        info = self._gguf.tensors[name]
        rows = self._gguf.data(name).reshape(int(np.prod(info.shape[:-1])), -1)
        values: Floats = formats.get(info.type_name).dequantize(rows).reshape(info.shape)
        return values

    def __iter__(self) -> Iterator[str]:
        return iter(self._gguf.tensors)

    def __len__(self) -> int:
        return len(self._gguf.tensors)


def reference_logits(path: Path, ids: list[int]) -> Floats:
    """What the file's weights mean: f32[T, V]."""
    from edgellm import models
    from edgellm.gguf import open_gguf
    from edgellm.kernels import reference

    with open_gguf(path) as gguf:
        program = models.get(gguf.require("general.architecture")).build(gguf.metadata, gguf.tensors)
        return reference.run(program, DequantizedWeights(gguf), ids)


def backend_logits(
    path: Path, args: argparse.Namespace, ids: list[int] | None, cache_type_k: str, cache_type_v: str
) -> tuple[list[int], Floats]:
    """-> the ids, those of --text if none are given, and the CPU backend's logits f32[T, V] with a cache of these types."""
    from edgellm import LLM

    chunk, length = 1 if args.one_by_one else CHUNK, {"max_context": len(ids)} if ids else {}
    types = {"cache_type_k": cache_type_k, "cache_type_v": cache_type_v}
    with LLM.load(str(path), threads=args.threads, prefill_chunk=chunk, precise=args.precise, **types, **length) as llm:
        ids = ids or llm.tokenize(args.text, special=True)
        return ids, np.array(llm.logits(ids))


def log_softmax(logits: Floats) -> NDArray[np.float64]:
    """Log-probabilities of each row, in float64."""
    shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    out: NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return out


def divergence(wanted: Floats, got: Floats) -> NDArray[np.float64]:
    """KL(wanted || got) of each row in nats, f64[T], from logits f32[T, V]."""
    rows = []
    for start in range(0, len(wanted), ROWS_AT_ONCE):
        part = slice(start, start + ROWS_AT_ONCE)
        p, q = log_softmax(wanted[part]), log_softmax(got[part])
        rows.append((np.exp(p) * (p - q)).sum(axis=-1))
    return np.concatenate(rows)


def summarize(wanted: Floats, got: Floats) -> dict[str, float]:
    """The figures that are printed."""
    kl = divergence(wanted, got)
    return {
        "mean_kl": float(kl.mean()),
        "median_kl": float(np.median(kl)),
        "p99_kl": float(np.quantile(kl, 0.99)),
        "max_kl": float(kl.max()),
        "same_best_id": float((wanted.argmax(-1) == got.argmax(-1)).mean()),
        "max_logit_difference": float(np.abs(wanted - got).max()),
    }


def load_ids(path: Path, key: str | None) -> list[int]:
    """Token ids from a JSON file: a list, or an object of lists of which `key` names one."""
    content = json.loads(path.read_text())
    if isinstance(content, dict):
        if key not in content:
            sys.exit(f"{path} holds {', '.join(content)}: choose one with --key")
        content = content[key]
    return [int(i) for i in content]


def main() -> None:
    """Parse, compute both sides, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a path, an alias or owner/repo, as for edgellm run")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--ids", type=Path, help="JSON file of token ids")
    source.add_argument("--text", help="a text to be tokenized")
    parser.add_argument("--key", help="which list of the JSON file")
    parser.add_argument("--one-by-one", action="store_true", help="feed single tokens, as decoding does")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--precise", action="store_true", help="with activations of two int8 parts")
    parser.add_argument(
        "--cache-type-k", default="f16", metavar="TYPE", help="how keys are kept (default: %(default)s)"
    )
    parser.add_argument(
        "--cache-type-v", default="f16", metavar="TYPE", help="how values are kept (default: %(default)s)"
    )
    parser.add_argument("--against-cache", metavar="TYPE", help="compare with this type of cache, not with NumPy")
    args = parser.parse_args()

    from edgellm import EdgeLLMError, hub

    try:
        path = hub.resolve(args.model)
        ids = load_ids(args.ids, args.key) if args.ids else None
        types = (args.cache_type_k, args.cache_type_v)
        ids, got = backend_logits(path, args, ids, *types)
        if args.against_cache:
            wanted = backend_logits(path, args, ids, args.against_cache, args.against_cache)[1]
        else:
            wanted = reference_logits(path, ids)
        result = summarize(wanted, got)
    except EdgeLLMError as error:
        sys.exit(f"kl: {error}")
    for name, value in result.items():
        print(f"{name.replace('_', ' '):>22}  {value:.6g}")
    about = {
        "model": path.name,
        "tokens": len(ids),
        "prefill_chunk": 1 if args.one_by_one else CHUNK,
        "precise": args.precise,
    }
    print(json.dumps(about | {"cache": types, "against": args.against_cache or "reference"} | result))


if __name__ == "__main__":
    main()
