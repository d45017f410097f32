"""Measure what threads do to decode: 1 to N + 1 of them (N: the default), quiet and beside one busy process.

    python tools/bench_threads.py [MODEL] [-t MOST] [-n TOKENS] [-r ROUNDS] [--markdown FILE]

One round loads the model for each number of threads in turn and decodes twice, quiet and beside a process that spins;
ratios are medians of paired rounds, relative to N threads in quiet. Where threads can be pinned to cores, both ways are
measured. Then the loaded model idles for two seconds: the CPU time that this takes should be nothing. --markdown writes
the section "threads" of a page. The last line is JSON.
"""

from __future__ import annotations

import argparse
import inspect
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import pages
from compare_peers import busy_process

WARM_UP_TOKENS = 8
SETTLE_S = 0.3  # idle threads stop spinning, or the busy process has started
IDLE_S = 2.0
TITLES = ("threads", "quiet tokens/s", "of the default", "beside a busy process", "of the default's quiet")

Case = tuple[int, "bool | None"]  # threads, pinned (None: no such option)


def pin_choices(load: Callable[..., Any]) -> tuple[bool | None, ...]:
    """Return the ways to pin threads that loading a model offers: (None,) without such an option."""
    return (False, True) if "pin" in inspect.signature(load).parameters else (None,)


def decode_tps(llm: Any, tokens: int) -> float:
    """Return tokens per second of greedy decoding, the first token not counted."""
    answer = llm.generate([1], max_tokens=tokens + 1, temperature=0, ignore_eos=True)
    return float(answer.timings.decode_tps)


def idle_share() -> float:
    """Return the CPU time that this process uses while nobody asks anything, in cores."""
    time.sleep(SETTLE_S)
    before, start = time.process_time(), time.perf_counter()
    time.sleep(IDLE_S)
    return (time.process_time() - before) / (time.perf_counter() - start)


def measure_case(load: Callable[..., Any], model: str, case: Case, tokens: int) -> tuple[float, float, float]:
    """Return tokens per second in quiet, beside a busy process, and the idle share."""
    threads, pin = case
    options = {} if pin is None else {"pin": pin}
    with load(model, threads=threads, max_context=tokens + 64, spec="off", **options) as llm:
        decode_tps(llm, WARM_UP_TOKENS)
        quiet = decode_tps(llm, tokens)
        with busy_process(True):
            time.sleep(SETTLE_S)
            busy = decode_tps(llm, tokens)
        return quiet, busy, idle_share()


def measure(
    load: Callable[..., Any], model: str, cases: Sequence[Case], tokens: int, rounds: int
) -> dict[Case, list[tuple[float, float, float]]]:
    """Return every round's figures of each case; every second round goes backwards."""
    found: dict[Case, list[tuple[float, float, float]]] = {case: [] for case in cases}
    for number in range(rounds):
        for case in cases if number % 2 == 0 else reversed(cases):
            found[case].append(measure_case(load, model, case, tokens))
    return found


def summarize(found: dict[Case, list[tuple[float, float, float]]], default: int) -> list[dict[str, Any]]:
    """Return medians, and medians of ratios to the quiet speed of `default` threads in the same round."""
    base = [quiet for quiet, _, _ in next(rounds for case, rounds in found.items() if case[0] == default)]
    results = []
    for (threads, pin), rounds in found.items():
        quiet, busy, idle = zip(*rounds, strict=True)
        results.append(
            {
                "threads": threads,
                "pin": pin,
                "quiet_tps": round(median(quiet), 2),
                "busy_tps": round(median(busy), 2),
                "quiet_ratio": round(median(a / b for a, b in zip(quiet, base, strict=True)), 3),
                "busy_ratio": round(median(a / b for a, b in zip(busy, base, strict=True)), 3),
                "idle_cores": round(median(idle), 4),
            }
        )
    return results


def make_rows(results: Sequence[dict[str, Any]]) -> list[list[str]]:
    """Return the cells of the table."""
    pinned = {None: "", False: ", free", True: ", pinned"}
    return [
        [
            f"{r['threads']}{pinned[r['pin']]}",
            f"{r['quiet_tps']:.1f}",
            f"{r['quiet_ratio']:.2f}",
            f"{r['busy_tps']:.1f}",
            f"{r['busy_ratio']:.2f}",
        ]
        for r in results
    ]


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print a table and a JSON line. Return 2 where the model cannot be loaded."""
    from edgellm import LLM, EdgeLLMError
    from edgellm.kernels.cpu.threads import default_threads

    default = default_threads()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("model", nargs="?", default="smollm2", help="a path, an alias or owner/repo (default: %(default)s)")
    add("-t", "--threads", type=int, default=default + 1, metavar="N", help="most threads (default: %(default)s)")
    add("-n", "--decode-tokens", type=int, default=96, metavar="N", help="tokens of decode (default: %(default)s)")
    add("-r", "--rounds", type=int, default=5, metavar="N", help="times each is measured (default: %(default)s)")
    add("--markdown", type=Path, metavar="FILE", help="page whose section `threads` is written")
    args = parser.parse_args(argv)
    if min(args.threads, args.decode_tokens, args.rounds) < 1:
        parser.error("--threads, --decode-tokens and --rounds must be at least 1")
    cases = [(threads, pin) for threads in range(1, args.threads + 1) for pin in pin_choices(LLM.load)]
    base = min(default, args.threads)
    try:
        found = measure(LLM.load, args.model, cases, args.decode_tokens, args.rounds)
        results = summarize(found, base)
        rows, idle = make_rows(results), max(r["idle_cores"] for r in results)
        text = f"{Path(args.model).name} on {pages.describe_machine()}; the default is {base} threads."
        print(f"{text}\n{pages.make_columns(TITLES, rows)}\nidle, a loaded model uses {idle:.2%} of a core")
        if args.markdown:
            told = f"{text} Idle, a loaded model uses {idle:.2%} of a core."
            pages.put_section(args.markdown, "threads", f"{told}\n\n{pages.make_table(TITLES, rows)}")
    except (EdgeLLMError, pages.PageError) as error:
        print(f"bench_threads: {error}", file=sys.stderr)
        return 2
    settings = {"model": args.model, "decode_tokens": args.decode_tokens, "rounds": args.rounds, "default": base}
    print(json.dumps({**settings, "idle_cores": idle, "results": results}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
