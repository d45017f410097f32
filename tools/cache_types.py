"""Measure what keeping keys and values in fewer bits costs and gives, for edgellm and for llama.cpp, in one run.

    python tools/cache_types.py [MODEL ...] [--types f16 q8_0 ...] [--peer-types f16 q8_0 q4_0] [-n 2000] [-d 4096]
                                [-r ROUNDS] [-t THREADS] [--peer-python PATH] [--markdown FILE]

Accuracy: the KL divergence of the logits after each of N tokens of English from those of the same program with its first
type (f16), fed as one prompt, ours with --precise. Speed: decode and prefill at a depth, relative to the first type, as
medians of paired ratios; all types take turns in processes of their own. Memory: bytes a token takes. --peer-types
without a value leaves the peer out. --markdown writes the section "cache-types" of a page. The last line is JSON.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import kl
import numpy as np
import pages
from arguments import require_at_least
from compare_peers import SIDES, Worker, WorkerError

TYPES = ("f16", "i16", "bf16", "q8_0", "e4m3", "e5m2", "q4_h")
PEER_TYPES = ("f16", "q8_0", "q4_0")
DECODE_TOKENS, PREFILL_TOKENS = 32, 256


def english(path: Path, count: int) -> list[int]:
    """Return `count` ids of the Python documentation, which every Python brings along."""
    from pydoc_data.topics import topics

    from edgellm.gguf import open_gguf
    from edgellm.tokenizer import Tokenizer

    with open_gguf(path) as file:
        tokenizer = Tokenizer.from_gguf(file)
    text = "\n".join(topics[name] for name in sorted(topics))[: 16 * count]
    ids = [int(i) for i in tokenizer.encode(text, add_bos=tokenizer.add_bos)]
    if len(ids) < count:
        raise WorkerError(f"the text has only {len(ids)} tokens, not {count}")
    return ids[:count]


def divergence(worker: Any, base: Any, ids: list[int], folder: Path) -> dict[str, float]:
    """Return mean KL and how often the likeliest id is the same, of `worker` from `base`."""
    logits = []
    for name, side in (("base", base), ("other", worker)):
        path = folder / name
        if side is worker or not path.exists():
            side.ask("write_logits", ids=ids, path=str(path))
        logits.append(np.memmap(path, np.float32, "r").reshape(len(ids), -1))
    wanted, got = logits
    same = [wanted[i].argmax() == got[i].argmax() for i in range(len(ids))]
    return {"mean_kl": float(kl.divergence(wanted, got).mean()), "same_best_id": float(np.mean(same))}


def speeds(workers: Sequence[Any], args: argparse.Namespace) -> list[dict[str, float]]:
    """Return per worker how fast it decodes and prefills at the depth, relative to the first."""
    choose = random.Random(0)
    vocab_size = min(worker.hello["vocab_size"] for worker in workers)
    start = [choose.randrange(vocab_size) for _ in range(args.depth)]
    times: list[list[tuple[float, float]]] = []
    for number in range(args.rounds + 1):  # the first only fills the caches
        prompt = start + [choose.randrange(vocab_size) for _ in range(PREFILL_TOKENS)]
        order = list(workers) if number % 2 else list(workers)[::-1]
        taken = {
            worker: (
                worker.ask("decode", ids=start, tokens=DECODE_TOKENS),
                worker.ask("prefill", ids=prompt, depth=len(start)),
            )
            for worker in order
        }
        times.append([taken[worker] for worker in workers])
    ratios = [[(row[0][k] / one[k]) for k in (0, 1)] for row in times[1:] for one in row]
    return [
        {
            name: round(median(r[k] for r in ratios[i :: len(workers)]), 3)
            for k, name in enumerate(("decode", "prefill"))
        }
        for i in range(len(workers))
    ]


def bytes_per_token(path: Path, cache_type: str) -> float:
    """Return what one token takes in all layers that keep it."""
    from edgellm import models
    from edgellm.cache.memory import read_bytes
    from edgellm.gguf import open_gguf

    with open_gguf(path) as file:
        program = models.get(str(file.require("general.architecture"))).build(file.metadata, file.tensors)
    return read_bytes(program.cache_layers, 64, (cache_type, cache_type)) / 64


def measure(side: str, python: str, path: Path, types: Sequence[str], args: argparse.Namespace) -> list[dict[str, Any]]:
    """Return one row per cache type of one program."""
    context = max(args.depth + PREFILL_TOKENS + DECODE_TOKENS, args.num_tokens) + 1
    ids = english(path, args.num_tokens)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        workers = []
        for name in types:
            workers.append(Worker(side, python, str(path), args.threads, context, name))
            stack.callback(workers[-1].close)
        rows: list[dict[str, Any]] = [{"side": side, "type": name} for name in types]
        for row, worker in zip(rows, workers, strict=True):
            row |= divergence(worker, workers[0], ids, folder)
        for row, speed in zip(rows, speeds(workers, args), strict=True):
            row |= speed
    return rows


def compare(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """Measure one model, print its table, return its rows."""
    from edgellm import hub

    path = Path(hub.resolve(name))
    rows = measure(SIDES[0], sys.executable, path, args.types, args)
    for row in rows:
        row["bytes_per_token"] = bytes_per_token(path, row["type"])
    if args.peer_types:
        rows += measure(SIDES[1], args.peer_python, path, args.peer_types, args)
    print(f"{name}: {args.num_tokens} tokens for accuracy, depth {args.depth}, {args.rounds} rounds")
    print(pages.make_columns(TITLES, make_rows(rows)) + "\n", flush=True)
    return {"model": name, "rows": rows}


TITLES = ("keys and values", "bytes a token", "KL, nats", "same best", "decode", "prefill")


def make_rows(rows: Sequence[dict[str, Any]]) -> list[list[str]]:
    """Return the cells of the table."""
    return [
        [
            f"{row['side']} {row['type']}",
            f"{row['bytes_per_token']:.0f}" if "bytes_per_token" in row else "-",
            f"{row['mean_kl']:.6f}",
            f"{row['same_best_id']:.1%}",
            f"{row['decode']:.2f}",
            f"{row['prefill']:.2f}",
        ]
        for row in rows
    ]


def make_section(results: Sequence[dict[str, Any]], args: argparse.Namespace) -> str:
    """Return the Markdown of all models."""
    told = (
        f"accuracy over {args.num_tokens} tokens, speed at depth {args.depth} relative to the first row of each program"
    )
    parts = [f"{pages.describe_machine(args.threads)}: {told}."]
    for result in results:
        parts.append(f"**{result['model']}**\n\n{pages.make_table(TITLES, make_rows(result['rows']))}")
    return "\n\n".join(parts)


def make_parser() -> argparse.ArgumentParser:
    """Return the options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("models", nargs="*", default=["smollm2", "gemma3-270m"], help="a path, an alias or owner/repo")
    add("--types", nargs="+", default=list(TYPES), metavar="TYPE", help="of edgellm (default: %(default)s)")
    add("--peer-types", nargs="*", default=list(PEER_TYPES), metavar="TYPE", help="of llama.cpp (default: %(default)s)")
    add("-n", "--num-tokens", type=int, default=2000, metavar="N", help="of text for accuracy (default: %(default)s)")
    add("-d", "--depth", type=int, default=4096, metavar="N", help="tokens in the cache (default: %(default)s)")
    add("-r", "--rounds", type=int, default=3, metavar="N", help="times each is timed (default: %(default)s)")
    add("-t", "--threads", type=int, default=2, metavar="N", help="of each side (default: %(default)s)")
    add("--peer-python", default=sys.executable, metavar="PATH", help="interpreter that has llama_cpp")
    add("--markdown", type=Path, metavar="FILE", help="page whose section `cache-types` is written")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Measure all models; print tables, then one JSON line. Return 2 where something is missing."""
    parser = make_parser()
    args = parser.parse_args(argv)
    require_at_least(parser, args, num_tokens=1, depth=1, rounds=1, threads=1)
    from edgellm import EdgeLLMError

    try:
        results = [compare(name, args) for name in args.models]
        if args.markdown:
            pages.put_section(args.markdown, "cache-types", make_section(results, args))
    except (WorkerError, EdgeLLMError, pages.PageError) as error:
        print(f"cache_types: {error}", file=sys.stderr)
        return 2
    settings = {key: value for key, value in vars(args).items() if key not in ("models", "peer_python", "markdown")}
    print(json.dumps({**settings, "results": results}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
