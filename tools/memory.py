"""Measure peak resident memory: load a model, read a prompt, write an answer, each case in a process of its own.

    python tools/memory.py [MODEL ...] [-p 512] [-n 64] [--weights packed raw]

The bar is the size of the model's file, the part of the cache that the tokens touch, and 150 MB for everything else:
interpreter, libraries, vocabulary, work space. Peak is what the system counted (VmHWM, or ru_maxrss), pages of
mapped files included. The last line is JSON. Exit code 1: a bar was passed. Not for Windows.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ALLOWANCE_BYTES = 150_000_000
MB = 1_000_000


def peak_bytes() -> int:
    """Return the most memory that this process ever held."""
    import resource

    # Linux's ru_maxrss starts at what the parent held when it started this process; VmHWM starts at nothing.
    if (peak := read_status("VmHWM")) is not None:
        return peak
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def now_bytes() -> dict[str, int]:
    """Return what is resident now, by kind, where the system tells (Linux)."""
    sizes = {"own": read_status("RssAnon"), "mapped": read_status("RssFile")}
    return {kind: size for kind, size in sizes.items() if size is not None}


def read_status(field: str) -> int | None:
    """Return a size that Linux tells of this process, in bytes, or None."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:")), None)


def run_case(model: str, weights: str, prompt_tokens: int, decode_tokens: int) -> dict[str, Any]:
    """Do the work in this process and return its figures."""
    from edgellm import LLM

    stages = {"start": peak_bytes()}
    context = 4096
    with LLM.load(model, threads=2, weights=weights, max_context=context, max_sequences=1) as llm:
        stages["load"], after_load = peak_bytes(), now_bytes()
        # Many different ids: each reads another row of the embedding table.
        ids = [7 * i % llm.vocab_size for i in range(prompt_tokens)]
        llm.generate(ids, max_tokens=decode_tokens, temperature=0, ignore_eos=True)
        stages["answer"] = peak_bytes()
        return {
            "file_bytes": llm.loaded.file.nbytes,
            "cache_bytes": llm.loaded.cache_bytes(prompt_tokens + decode_tokens),
            "peak_bytes": peak_bytes(),
            "peak_after_bytes": stages,
            "resident_after_load_bytes": after_load,
            "resident_after_answer_bytes": now_bytes(),
        }


def run_apart(model: str, weights: str, prompt_tokens: int, decode_tokens: int) -> dict[str, Any]:
    """Do the work in a fresh process: peaks never go down."""
    case = json.dumps([model, weights, prompt_tokens, decode_tokens])
    done = subprocess.run([sys.executable, __file__, "--case", case], stdout=subprocess.PIPE, text=True, check=True)
    figures: dict[str, Any] = json.loads(done.stdout)
    figures["bar_bytes"] = figures["file_bytes"] + figures["cache_bytes"] + ALLOWANCE_BYTES
    return figures


def report_text(name: str, weights: str, figures: dict[str, Any]) -> str:
    """Return one case's figures for people."""
    peak, bar = figures["peak_bytes"] / MB, figures["bar_bytes"] / MB
    parts = (
        f"file {figures['file_bytes'] / MB:.1f} + cache {figures['cache_bytes'] / MB:.1f} + {ALLOWANCE_BYTES / MB:.0f}"
    )
    lines = [f"{name}, {weights}: peak {peak:.1f} MB of {bar:.1f} ({parts}): {'in' if peak <= bar else 'OVER'}"]
    stages = ", ".join(f"{stage} {size / MB:.1f}" for stage, size in figures["peak_after_bytes"].items())
    lines.append(f"  highest after each stage: {stages}")
    kinds = figures["resident_after_answer_bytes"]
    lines.append("  resident at the end: " + ", ".join(f"{kind} {size / MB:.1f}" for kind, size in kinds.items()))
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    models = ["smollm2", "gemma3-270m"]
    parser.add_argument(
        "models", nargs="*", default=models, help="a path, an alias or owner/repo (default: both aliases)"
    )
    parser.add_argument("-p", "--prompt-tokens", type=int, default=512, metavar="N", help="default: %(default)s")
    parser.add_argument("-n", "--decode-tokens", type=int, default=64, metavar="N", help="default: %(default)s")
    parser.add_argument("--weights", nargs="+", choices=("packed", "raw"), default=["packed", "raw"])
    parser.add_argument("--case", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.case:
        print(json.dumps(run_case(*json.loads(args.case))))
        return 0
    from edgellm import EdgeLLMError, hub

    results = []
    try:
        for name in args.models:
            path = str(hub.resolve(name))
            for weights in args.weights:
                figures = run_apart(path, weights, args.prompt_tokens, args.decode_tokens)
                print(report_text(name, weights, figures), flush=True)
                results.append({"model": name, "weights": weights, **figures})
    except EdgeLLMError as error:
        print(f"memory: {error}", file=sys.stderr)
        return 2
    print(json.dumps({"prompt_tokens": args.prompt_tokens, "decode_tokens": args.decode_tokens, "results": results}))
    return 1 if any(figures["peak_bytes"] > figures["bar_bytes"] for figures in results) else 0


if __name__ == "__main__":
    sys.exit(main())
