"""Measure what choosing a token costs beside computing its logits, for every way of choosing.

    python tools/bench_sampling.py [MODEL] [-r ROUNDS] [-t THREADS] [--text TEXT]

The rows of logits are the model's own, at places of an English text. Each round times a few decode steps (with the bare choice
of the likeliest id) and then each way on every row. Figures are medians in microseconds, shares are of a decode step of the
same run. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from statistics import median
from typing import Any

from arguments import require_at_least

TEXT = (
    "The harbour was quiet when the fishermen came back. Three of them had been out since midnight, and none could say why the"
    " nets stayed empty. 'It is the warm water,' said the oldest one; the others looked at the sky and at the price list."
)
OFF: dict[str, Any] = {"top_k": 0, "top_p": 1.0, "min_p": 0.0}
WAYS: dict[str, dict[str, Any]] = {
    "default": {},
    "greedy": {"temperature": 0.0},
    "no filter": OFF,
    "top_k 0": {"top_k": 0},
    "top_k alone": OFF | {"top_k": 40},
    "top_p alone": OFF | {"top_p": 0.95},
    "min_p alone": OFF | {"min_p": 0.05},
    "typical_p": {"typical_p": 0.9},
    "typical_p alone": OFF | {"typical_p": 0.9},
    "top_n_sigma": {"top_n_sigma": 1.0},
    "top_n_sigma alone": OFF | {"top_n_sigma": 1.0},
    "xtc": {"xtc_probability": 0.5},
    "dynamic temperature": {"dynatemp_range": 0.5},
    "penalties": {"repeat_penalty": 1.1, "frequency_penalty": 0.1},
    "penalties, all tokens": {"repeat_penalty": 1.1, "repeat_last_n": -1},
    "dry": {"dry_multiplier": 0.8},
    "mirostat": {"mirostat": 2},
    "logit_bias": {"logit_bias": {5: 2.0}},
    "logprobs 5": {"logprobs": 5},
    "logprobs 5, penalties": {"logprobs": 5, "repeat_penalty": 1.1},
}
DECODE_TOKENS = 24


def time_way(llm: Any, rows: Any, given: dict[str, Any], context: list[int]) -> list[float]:
    """Return seconds of choosing after each row, with `context` before."""
    import numpy as np

    from edgellm.choosing import Chooser
    from edgellm.config import SamplingParams

    chooser = Chooser(SamplingParams(seed=1, **given), token_bytes=llm.tokenizer.token_bytes)
    chooser.use(llm.loaded.engine.runner.vocabulary)
    times, ids, row = [], list(context), np.empty_like(rows[0])
    for logits in rows:
        row[:] = logits
        start = time.perf_counter()
        ids.append(chooser.choose(row, ids, len(context)).token_id)
        times.append(time.perf_counter() - start)
        chooser.accept(ids[-1])
    return times[1:]  # the first one reads the whole context


def measure(llm: Any, args: argparse.Namespace) -> dict[str, Any]:
    """Return medians of every way."""
    ids = llm.tokenize(args.text)
    rows = llm.logits(ids)
    context = ids * (1 + args.context // len(ids))
    times: dict[str, list[float]] = {name: [] for name in WAYS}
    steps = []
    for _ in range(args.rounds):
        answer = llm.generate(ids[:8], max_tokens=DECODE_TOKENS, temperature=0, ignore_eos=True)
        steps.append(1.0 / answer.timings.decode_tps)
        for name, given in WAYS.items():
            times[name] += time_way(llm, rows, given, context)
    step = median(steps)
    return {
        "vocab_size": llm.vocab_size,
        "threads": llm.loaded.num_threads,
        "step_us": round(step * 1e6),
        "us": {name: round(median(found) * 1e6, 1) for name, found in times.items()},
        "percent": {name: round(100 * median(found) / step, 2) for name, found in times.items()},
    }


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="gemma3-270m", metavar="MODEL")
    parser.add_argument("-r", "--rounds", type=int, default=5, metavar="N")
    parser.add_argument("-c", "--context", type=int, default=1000, metavar="N", help="tokens before the answer")
    parser.add_argument("-t", "--threads", type=int, metavar="N")
    parser.add_argument("--text", default=TEXT)
    args = parser.parse_args(words)
    require_at_least(parser, args, rounds=1, context=1)

    from edgellm import LLM

    with LLM.load(args.model, threads=args.threads) as llm:
        found = measure(llm, args)
    print(f"{args.model}: {found['vocab_size']} ids, a decode step takes {found['step_us']} us")
    for name, us in found["us"].items():
        print(f"  {name:24}{us:10.1f} us{found['percent'][name]:8.2f} %")
    print(json.dumps({"model": args.model, **found}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
