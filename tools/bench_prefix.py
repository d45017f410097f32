"""Measure how much sooner an answer begins when the prompt's beginning is known already, from memory and from disk.

    python tools/bench_prefix.py [MODEL ...] [-p 1000] [-q 16] [-r ROUNDS] [-t THREADS]

Each round has a prompt of P shared ids and Q of its own: cold; then another with the same P ids, from memory; then the
model is loaded anew, and a third takes them from disk. Times are from the request to the first token, shares are of the
cold time; every answer is compared with that of a model that knew nothing. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
from collections.abc import Sequence
from statistics import median
from typing import Any

from arguments import require_at_least

ANSWER_TOKENS = 8
DISK_BYTES = 4 << 30


def ask(llm: Any, ids: list[int]) -> tuple[float, list[int]]:
    """Return seconds to the first token, and the answer's ids."""
    answer = llm.generate(ids, max_tokens=ANSWER_TOKENS, temperature=0, ignore_eos=True)
    return answer.timings.ttft_s, answer.token_ids


def measure(model: str, args: argparse.Namespace) -> dict[str, Any]:
    """Return medians of one model."""
    from edgellm import LLM

    choose = random.Random(0)
    context = args.prompt_tokens + args.own_tokens + ANSWER_TOKENS + 1
    times: dict[str, list[float]] = {"cold": [], "memory": [], "disk": []}
    same, size = True, 1

    def ids(count: int) -> list[int]:
        return [choose.randrange(size) for _ in range(count)]

    def load(disk: int = DISK_BYTES) -> Any:
        return LLM.load(model, threads=args.threads, max_context=context, disk_cache=disk)

    for _ in range(args.rounds):
        with load() as llm:
            size = llm.vocab_size
            ask(llm, ids(args.prompt_tokens // 4))  # threads and pages are awake
            shared, own = ids(args.prompt_tokens), [ids(args.own_tokens) for _ in range(3)]
            answers = []
            for name, tail in (("cold", own[0]), ("memory", own[1])):
                seconds, answer = ask(llm, shared + tail)
                times[name].append(seconds)
                answers.append(answer)
        with load() as llm:
            ask(llm, ids(args.prompt_tokens // 4))
            seconds, answer = ask(llm, shared + own[2])
            times["disk"].append(seconds)
            answers.append(answer)
        for tail, answer in list(zip(own, answers, strict=True))[1:]:
            with load(disk=0) as llm:
                same = same and ask(llm, shared + tail)[1] == answer
    cold = median(times["cold"])
    shares = {f"{name}_share": round(median(times[name]) / cold, 4) for name in ("memory", "disk")}
    return {f"{name}_s": round(median(values), 4) for name, values in times.items()} | shares | {"same_bits": same}


def main(argv: Sequence[str] | None = None) -> int:
    """Measure all models; print, then one JSON line. Return 2 where something is missing, 1 where an answer differed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("models", nargs="*", default=["smollm2", "gemma3-270m"], help="a path, an alias or owner/repo")
    add("-p", "--prompt-tokens", type=int, default=1000, metavar="N", help="shared ids (default: %(default)s)")
    add("-q", "--own-tokens", type=int, default=16, metavar="N", help="a prompt's own ids (default: %(default)s)")
    add("-r", "--rounds", type=int, default=5, metavar="N", help="times each is measured (default: %(default)s)")
    add("-t", "--threads", type=int, default=2, metavar="N", help="threads (default: %(default)s)")
    args = parser.parse_args(argv)
    require_at_least(parser, args, prompt_tokens=1, own_tokens=1, rounds=1, threads=1)
    from edgellm import EdgeLLMError, hub

    results = {}
    try:
        for name in args.models:
            model = str(hub.resolve(name))
            with tempfile.TemporaryDirectory() as home:  # a disk cache of its own; kernels stay where they are
                results[name] = figures = measure_at(home, model, args)
            print(
                f"{name}: {args.prompt_tokens} shared ids: cold {figures['cold_s']:.3f} s, from memory"
                f" {figures['memory_s']:.4f} s ({figures['memory_share']:.1%}), from disk {figures['disk_s']:.4f} s"
                f" ({figures['disk_share']:.1%}), answers {'equal' if figures['same_bits'] else 'DIFFER'}",
                flush=True,
            )
    except EdgeLLMError as error:
        print(f"bench_prefix: {error}", file=sys.stderr)
        return 2
    print(json.dumps({**{k: v for k, v in vars(args).items() if k != "models"}, "results": results}))
    return 0 if all(figures["same_bits"] for figures in results.values()) else 1


def measure_at(home: str, model: str, args: argparse.Namespace) -> dict[str, Any]:
    """Measure with everything that edgellm keeps on disk in `home`."""
    before = os.environ.get("EDGELLM_HOME")
    os.environ["EDGELLM_HOME"] = home
    try:
        return measure(model, args)
    finally:
        if before is None:
            del os.environ["EDGELLM_HOME"]
        else:
            os.environ["EDGELLM_HOME"] = before


if __name__ == "__main__":
    sys.exit(main())
