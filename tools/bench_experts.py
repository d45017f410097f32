"""Measure a mixture of experts beside llama.cpp: decode as a share of plain reading, prefill, both in tokens per second.

    python tools/bench_experts.py [--peer-python PATH] [-t THREADS] [-r ROUNDS] [--vocabulary FILE] [--keep FOLDER]
                                  [--layers 16] [--hidden 1024] [--ffn 512] [--experts 32] [--used-experts 4] [--markdown FILE]

Makes the model first (random weights, Q4_K_M, with the vocabulary of a file; SmolLM2's by default), in a temporary folder
unless --keep names one. Bytes used are those of the matrices that a token multiplies with: of the experts those that are
chosen. --markdown writes the section "experts" of a page. The last line is JSON. Exit code 2: something is missing.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import compare_peers
import pages
import synthesise
from arguments import require_at_least

SHAPE = {"layers": 16, "hidden": 1024, "ffn": 512, "experts": 32, "used_experts": 4, "heads": 16, "kv_heads": 8}


def make_model(folder: Path, args: argparse.Namespace, vocabulary: Path) -> Path:
    """Write the model, unless it is there. -> its path."""
    sizes = {name: getattr(args, name) for name in SHAPE}
    name = "-".join(f"{key.replace('_', '-')}{value}" for key, value in sizes.items())
    path = folder / f"experts-{args.format}-{name}.gguf"
    if not path.exists():
        options = [f"--{key.replace('_', '-')}={value}" for key, value in sizes.items()]
        words = [str(path), "--vocabulary", str(vocabulary), "--format", args.format, *options]
        synthesise.synthesise(synthesise.parse(words))
    return path


def make_section(result: dict[str, Any], args: argparse.Namespace) -> str:
    """Return the Markdown of the result."""
    shape = (
        f"{args.layers} layers, hidden {args.hidden}, {args.experts} experts of {args.ffn}, {args.used_experts} of them used, "
        f"{args.format}, random weights"
    )
    return f"{shape}. {compare_peers.make_section([result], args)}"


def main(argv: Sequence[str] | None = None) -> int:
    """Make, compare; print a table, then one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    for name, default in SHAPE.items():
        add(f"--{name.replace('_', '-')}", type=int, default=default, metavar="N", help="default %(default)s")
    add("--format", default="Q4_K_M", help="of the weights (default: %(default)s)")
    add("--vocabulary", metavar="FILE", default="smollm2", help="file or model whose vocabulary is copied")
    add("--keep", type=Path, metavar="FOLDER", help="where the model is made, and stays")
    add("-t", "--threads", type=int, default=2, metavar="N", help="threads of each side (default: %(default)s)")
    add("-p", "--prompt-tokens", type=int, default=512, metavar="N", help="tokens of prefill (default: %(default)s)")
    add("-n", "--decode-tokens", type=int, default=128, metavar="N", help="tokens of decode (default: %(default)s)")
    add("-r", "--rounds", type=int, default=5, metavar="N", help="times each is measured (default: %(default)s)")
    add(
        "--peer-python",
        default=sys.executable,
        metavar="PATH",
        help="interpreter that has llama_cpp (default: this one)",
    )
    add("--markdown", type=Path, metavar="FILE", help="page whose section `experts` is written")
    args = parser.parse_args(argv)
    require_at_least(parser, args, threads=1, prompt_tokens=1, decode_tokens=1, rounds=1, experts=1, used_experts=1)
    args.depth, args.busy = 0, False
    from edgellm import EdgeLLMError, hub

    try:
        with tempfile.TemporaryDirectory() as temporary:
            model = make_model(args.keep or Path(temporary), args, Path(hub.resolve(args.vocabulary)))
            result = compare_peers.compare("experts", str(model), args)
        if args.markdown:
            pages.put_section(args.markdown, "experts", make_section(result, args))
    except (compare_peers.WorkerError, EdgeLLMError, ValueError, pages.PageError) as error:
        print(f"bench_experts: {error}", file=sys.stderr)
        return 2
    settings = {key: value for key, value in vars(args).items() if key not in ("peer_python", "markdown", "keep")}
    print(json.dumps({**settings, **result}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
