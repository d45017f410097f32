"""Measure this machine's own limits: integer multiply-adds and plain reading of memory, for 1, 2 ... N threads.

    python tools/peak.py [-t THREADS] [-r ROUNDS] [--markdown FILE]

A vector instruction that multiplies 32 pairs of bytes counts 64 operations. "multiply-add" is what collects integer dots,
from registers: on AVX2 vpmaddubsw and vpaddw, the first alone being "multiply"; on other levels their own instruction.
Decode is compared with reading, prefill with multiply-add. --markdown writes the section "peak" of a page. The last line
is JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import pages

TITLES = ("threads", "multiply-add GOP/s", "multiply GOP/s", "reading GB/s")


def measure(threads: int, rounds: int) -> dict[str, Any]:
    """Return medians for one number of threads."""
    from edgellm.kernels.cpu import objects
    from edgellm.kernels.cpu.bandwidth import Reader
    from edgellm.kernels.cpu.peak_rate import Peak, peak_kernels
    from edgellm.kernels.cpu.threads import KERNELS, Threads
    from edgellm.paths import home

    level, folder = objects.choose_level().level, home() / "kernels"
    names = peak_kernels(level)
    kernels = objects.addresses([*KERNELS, *names], level, folder)
    reading = Reader(folder).read(threads, rounds).median
    team = Threads(threads, kernels, 4096)
    try:
        peaks = [Peak(team, kernels, name) for name in names]
        passes = [[peak.rate() for peak in peaks] for _ in range(rounds + 1)][1:]  # the first wakes the threads
    finally:
        team.close()
    multiply_add, *alone = (round(median(rates) / 1e9, 2) for rates in zip(*passes, strict=True))
    multiply, read_gbps = alone[0] if alone else None, round(reading / 1e9, 2)
    return {"threads": threads, "multiply_add_gops": multiply_add, "multiply_gops": multiply, "read_gbps": read_gbps}


def make_rows(results: Sequence[dict[str, Any]]) -> list[list[str]]:
    """Return the cells of the table."""
    return [
        [
            str(r["threads"]),
            f"{r['multiply_add_gops']:.0f}",
            "-" if r["multiply_gops"] is None else f"{r['multiply_gops']:.0f}",
            f"{r['read_gbps']:.1f}",
        ]
        for r in results
    ]


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print a table and a JSON line."""
    from edgellm.kernels.cpu.threads import default_threads

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("-t", "--threads", type=int, default=default_threads(), metavar="N", help="most threads (default: %(default)s)")
    add("-r", "--rounds", type=int, default=15, metavar="N", help="times each is measured (default: %(default)s)")
    add("--markdown", type=Path, metavar="FILE", help="page whose section `peak` is written")
    args = parser.parse_args(argv)
    if min(args.threads, args.rounds) < 1:
        parser.error("--threads and --rounds must be at least 1")
    results = [measure(threads, args.rounds) for threads in range(1, args.threads + 1)]
    rows = make_rows(results)
    print(pages.make_columns(TITLES, rows))
    try:
        if args.markdown:
            pages.put_section(args.markdown, "peak", f"{pages.describe_machine()}.\n\n{pages.make_table(TITLES, rows)}")
    except pages.PageError as error:
        print(f"peak: {error}", file=sys.stderr)
        return 2
    print(json.dumps({"machine": pages.describe_machine(), "rounds": args.rounds, "results": results}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
