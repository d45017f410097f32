"""Measure how time and memory grow with a very long prompt, and that a window keeps both constant.

    python tools/bench_long.py [MODEL] [-p 100000] [-w 200000] [--window 4096] [--sinks 4] [-t THREADS]

Without MODEL a tiny random one is made. Two prompts are fed: one of P ids with everything in reach, whose seconds per
chunk must grow as a straight line (attention) from a constant (everything else), and one of W ids through --window,
whose seconds and resident memory must not grow. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pages
import psutil

CHUNK = 512
PARTS = 10


def feed(model: str, count: int, args: argparse.Namespace, **options: Any) -> dict[str, Any]:
    """Feed `count` random ids as one prompt; return seconds of each chunk and resident bytes after each tenth."""
    from edgellm import LLM

    process = psutil.Process()
    with LLM.load(model, threads=args.threads, prefill_chunk=CHUNK, **options) as llm:
        ids = np.random.default_rng(0).integers(0, llm.vocab_size, count).tolist()
        llm.generate(ids[:CHUNK], max_tokens=4, temperature=0, ignore_eos=True)
        seconds: list[float] = []
        resident: list[int] = []
        last = [time.perf_counter(), 0.0]

        def note(done: int, total: int) -> None:
            now, chunks = time.perf_counter(), (done - last[1]) / CHUNK
            if chunks >= 1:  # what was told late is shared out among its chunks
                seconds.extend([(now - last[0]) / chunks] * round(chunks))
                resident.extend([process.memory_info().rss] * round(chunks))
                last[:] = [now, done]

        llm.generate(ids[::-1], max_tokens=1, temperature=0, on_prefill=note)
    return {"seconds": seconds, "resident": resident}


def summarize(run: dict[str, Any]) -> dict[str, Any]:
    """Return medians by tenths of the prompt, and how well a straight line fits the chunks' seconds."""
    seconds = np.array(run["seconds"])
    tenths = np.array_split(seconds, PARTS)
    chunk = np.arange(len(seconds))
    slope, constant = np.polyfit(chunk, seconds, 1)
    quadratic = np.polyfit(chunk, seconds, 2)
    residents = np.array_split(np.array(run["resident"]), PARTS)
    return {
        "ms_per_chunk": [round(1e3 * median(part), 2) for part in tenths],
        "resident_mb": [round(float(part[-1]) / 1e6, 1) for part in residents],
        "constant_ms": round(1e3 * float(constant), 2),
        "slope_us": round(1e6 * float(slope), 2),
        "bend": round(float(quadratic[0] * len(seconds) ** 2 / max(seconds.mean(), 1e-9)), 3),
        "total_s": round(float(seconds.sum()), 2),
    }


def make_model(folder: str) -> str:
    """Write the tiny random model: two layers, heads of 64, 105 MB of cache for 100,000 tokens; smollm2's vocabulary."""
    import subprocess

    from edgellm import hub

    path = Path(folder) / "tiny.gguf"
    shape = ["--hidden", "128", "--ffn", "256", "--layers", "2", "--heads", "4", "--kv-heads", "2", "--head-dim", "64"]
    script = Path(__file__).with_name("synthesise.py")
    vocabulary = ["--vocabulary", str(hub.resolve("smollm2"))]
    subprocess.run([sys.executable, str(script), str(path), *vocabulary, *shape, "--format", "Q8_0"], check=True)
    return str(path)


def main(argv: Sequence[str] | None = None) -> int:
    """Feed both prompts; print a table, then one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("model", nargs="?", help="a path, an alias or owner/repo (default: a tiny random model)")
    add("-p", "--prompt-tokens", type=int, default=100_000, metavar="N", help="all in reach (default: %(default)s)")
    add("-w", "--windowed-tokens", type=int, default=200_000, metavar="N", help="with a window (default: %(default)s)")
    add("--window", type=int, default=4096, metavar="N", help="tokens in reach then (default: %(default)s)")
    add("--sinks", type=int, default=4, metavar="N", help="first tokens that stay (default: %(default)s)")
    add("-t", "--threads", type=int, default=2, metavar="N", help="threads (default: %(default)s)")
    args = parser.parse_args(argv)
    from edgellm import EdgeLLMError, hub

    with tempfile.TemporaryDirectory() as folder:
        try:
            model = str(hub.resolve(args.model)) if args.model else make_model(folder)
            # The window comes first: what the other run touches stays resident.
            options = {"window": args.window, "sinks": args.sinks}
            results = {"window": summarize(feed(model, args.windowed_tokens, args, **options))}
            context = args.prompt_tokens + CHUNK
            results["all"] = summarize(feed(model, args.prompt_tokens, args, max_context=context))
        except EdgeLLMError as error:
            print(f"bench_long: {error}", file=sys.stderr)
            return 2
    titles = ["tenths of the prompt", *(str(i + 1) for i in range(PARTS))]
    rows = []
    for name, figures in results.items():
        rows.append([f"{name}: ms a chunk of {CHUNK}", *(f"{x:.1f}" for x in figures["ms_per_chunk"])])
        rows.append([f"{name}: resident MB", *(f"{x:.0f}" for x in figures["resident_mb"])])
    print(pages.make_columns(titles, rows))
    line = results["all"]
    print(
        f"all: {line['constant_ms']} ms a chunk + {line['slope_us']} us for each chunk before it, bend {line['bend']}"
    )
    print(json.dumps({**vars(args), "results": results}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
