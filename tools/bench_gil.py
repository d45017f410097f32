"""Measure what generating costs a program's main thread: lateness of a tick, and how soon an answer can be stopped.

    python tools/bench_gil.py [MODEL] [-t THREADS] [-p PROMPT_TOKENS] [-n TOKENS] [--hz HZ] [-r STOPS]

The tick runs in the main thread, as a window's redraw does, in quiet, beside a prompt and beside decoding. Then answers are
cancelled in the middle of a prompt and of decoding: the time until their place is free. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from arguments import require_at_least

PERCENTILES = (50, 90, 99, 100)
QUIET_S = 2.0
HEAD_START_S = (0.02, 0.3)  # when an answer is cancelled: anywhere in these


def tick(hz: float, is_done: Callable[[], bool]) -> list[float]:
    """Return how late each tick was, in seconds, until is_done()."""
    late, due = [], time.perf_counter()
    while not is_done():
        due += 1 / hz
        time.sleep(max(0.0, due - time.perf_counter()))
        late.append(max(0.0, time.perf_counter() - due))
        due = max(due, time.perf_counter() - 1 / hz)  # what is missed is missed
    return late


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """Return the percentiles of values in milliseconds, by name."""
    ordered = sorted(values)
    return {f"p{p}": round(1e3 * ordered[min(len(ordered) - 1, len(ordered) * p // 100)], 2) for p in PERCENTILES}


def tick_beside(hz: float, work: Callable[[], Any]) -> dict[str, float]:
    """Return the percentiles of lateness while another thread waits for `work`."""
    thread = threading.Thread(target=work)
    thread.start()
    late = tick(hz, lambda: not thread.is_alive())
    thread.join()
    return percentiles(late or [0.0])


def stop_times(llm: Any, prompt_tokens: int, count: int, in_prompt: bool) -> dict[str, float]:
    """Return the percentiles of the time that `close` of an answer takes, in the middle of its prompt or after it."""
    numbers, times = random.Random(1), []
    for _ in range(count):
        ids = [numbers.randrange(llm.vocab_size) for _ in range(prompt_tokens if in_prompt else 4)]
        stream = llm.stream(ids, ignore_eos=True, temperature=0)
        if not in_prompt:
            next(stream)
        time.sleep(numbers.uniform(*HEAD_START_S))
        start = time.perf_counter()
        stream.close()
        times.append(time.perf_counter() - start)
    return percentiles(times)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; see the top of this file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="smollm2")
    parser.add_argument("-t", "--threads", type=int, default=None)
    parser.add_argument("-p", "--prompt-tokens", type=int, default=2000)
    parser.add_argument("-n", "--tokens", type=int, default=256)
    parser.add_argument("--hz", type=float, default=60.0)
    parser.add_argument("-r", "--stops", type=int, default=20)
    args = parser.parse_args(arguments)
    require_at_least(parser, args, prompt_tokens=4, tokens=2, hz=1, stops=1)
    from edgellm import LLM

    with LLM.load(args.model, threads=args.threads, max_context=args.prompt_tokens + args.tokens + 8) as llm:
        numbers = random.Random(0)
        ids = [numbers.randrange(llm.vocab_size) for _ in range(args.prompt_tokens)]
        llm.generate(ids[:8], max_tokens=8, ignore_eos=True)
        end = time.perf_counter() + QUIET_S
        rows = {"quiet": percentiles(tick(args.hz, lambda: time.perf_counter() > end))}
        rows["beside a prompt"] = tick_beside(args.hz, lambda: llm.generate(ids, max_tokens=1))
        rows["beside decoding"] = tick_beside(
            args.hz, lambda: list(llm.stream(ids[:4], max_tokens=args.tokens, ignore_eos=True, temperature=0))
        )
        rows["stopping in a prompt"] = stop_times(llm, args.prompt_tokens, args.stops, True)
        rows["stopping in decoding"] = stop_times(llm, args.prompt_tokens, args.stops, False)
    print(f"{'milliseconds':24}" + "".join(f"{name:>10}" for name in rows["quiet"]))
    for name, row in rows.items():
        print(f"{name:24}" + "".join(f"{value:10.2f}" for value in row.values()))
    print(json.dumps({"model": args.model, "hz": args.hz, "prompt_tokens": args.prompt_tokens, **rows}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
