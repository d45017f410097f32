"""Measure every number format on the matrices of a 1B model: decode, small batches, prefill, packing.

    python tools/bench_formats.py [--formats Q4_0 Q6_K ...] [--only decode small prefill] [-t THREADS] [-r ROUNDS]
                                  [--markdown FILE] [--chart FILE.svg]

Random weights run through the real backend, and only the time of its matrix stages counts. Decode (one token) takes
turns with plain reading of memory, prefill (512 tokens) with multiply-adds from registers, on the same threads: shares are
medians of paired ratios. Small batches are 2 to 8 tokens, and their cost is told relative to one. --markdown writes the
section "formats" of a page. The last line is JSON. All formats take some minutes, most of them for compiling.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import bench_program
import chart
import pages
from arguments import require_at_least

PHASES = ("decode", "small", "prefill")
SMALL = range(2, 9)
PREFILL_TOKENS = 512
GOAL = 0.8  # of plain reading, in decode
FORMAT_COLUMNS = (
    ("format", "format", "{}"),
    ("bits per weight", "bits", "{:.2f}"),
    ("packed", "packed_bits", "{:.2f}"),
    ("packing MB/s", "pack_mbps", "{:.0f}"),
    ("decode GB/s", "decode_gbps", "{:.1f}"),
    ("of reading", "decode_share", "{:.2f}"),
    ("prefill GOP/s", "prefill_gops", "{:.0f}"),
    ("of the peak", "peak_share", "{:.2f}"),
    ("time, best 4-bit = 1", "of_best_4bit", "{:.2f}"),
)
SMALL_COLUMNS = (("format", "format", "{}"), *((f"M={m}", f"rows_{m}", "{:.2f}") for m in SMALL))

Result = dict[str, Any]


class PlainReading:
    """The best plain reader of this machine (see `bandwidth.py`), on a team that does something else in between."""

    def __init__(self, team: Any, folder: Path) -> None:
        from edgellm.kernels.cpu.bandwidth import Reader, best_streams

        self._team, self._reader = team, Reader(folder)
        self._streams = best_streams(self._reader.rates(team, 3))

    def rate(self) -> float:
        """Return bytes per second of one pass."""
        return self._reader.rate(self._team, self._streams)


def measure_few(bench: Any, reader: Any, rounds: int, phases: Sequence[str]) -> Result:
    """Measure decode, the reader in turn, and small batches."""
    bench.matrix_s(1), reader.rate()
    found: Result = {}
    if "decode" in phases:
        pairs = [(reader.rate(), bench.packed_bytes / bench.matrix_s(1)) for _ in range(rounds)]
        found["read_gbps"], found["decode_gbps"] = (round(median(side) / 1e9, 2) for side in zip(*pairs, strict=True))
        found["decode_share"] = round(median(mine / plain for plain, mine in pairs), 3)
    if "small" in phases:
        times = [[bench.matrix_s(m) for m in (1, *SMALL)] for _ in range(rounds + 1)][1:]
        for i, m in enumerate(SMALL, 1):
            found[f"rows_{m}"] = round(median(t[i] / t[0] for t in times), 3)
    return found


def measure_many(bench: Any, peak: Any, rounds: int, tokens: int) -> Result:
    """Measure prefill, the peak in turn."""
    operations = 2 * tokens * bench.values
    bench.matrix_s(tokens), peak.rate()
    pairs = [(peak.rate(), operations / bench.matrix_s(tokens)) for _ in range(max(3, rounds // 3))]
    peak_gops, gops = (round(median(side) / 1e9, 1) for side in zip(*pairs, strict=True))
    return {
        "peak_gops": peak_gops,
        "prefill_gops": gops,
        "peak_share": round(median(mine / top for top, mine in pairs), 3),
    }


def measure_format(name: str, args: argparse.Namespace) -> Result:
    """Measure one format. Decode has so many layers that no cache holds them, prefill has one."""
    from edgellm.kernels import formats
    from edgellm.kernels.cpu import objects
    from edgellm.kernels.cpu.peak_rate import Peak, peak_kernels
    from edgellm.paths import home

    format, shape, folder = formats.get(name), bench_program.Shape(args.hidden, args.ffn), home() / "kernels"
    level = objects.choose_level().level
    kernels = objects.addresses(peak_kernels(level), level, folder)
    result: Result = {"format": name, "bits": round(8 * format.group_bytes / format.group_size, 4)}

    def make(layers: int, tokens: int) -> Any:
        bench = bench_program.FormatBench(format, layers, shape, args.threads, folder, tokens)
        result.setdefault("packed_bits", round(8 * bench.packed_bytes / bench.values, 4))
        result.setdefault("pack_mbps", round(bench.pack_rate / 1e6, 1))
        return bench

    if "decode" in args.only or "small" in args.only:
        layer_bytes = format.packed_bytes(8, shape.layer_values // 8)
        bench = make(-(-args.megabytes * 1_000_000 // layer_bytes), max(SMALL))
        try:
            result |= measure_few(bench, PlainReading(bench.team, folder), args.rounds, args.only)
        finally:
            bench.close()
    if "prefill" in args.only:
        bench = make(1, args.tokens)
        try:
            peak = Peak(bench.team, kernels, peak_kernels(level)[0])
            result |= measure_many(bench, peak, args.rounds, args.tokens)
        finally:
            bench.close()
    return result


def compare_prefill(results: Sequence[Result]) -> None:
    """Add to each result how much longer its prefill takes than that of the fastest format of 4 to 5 bits.

    Shares of the peak are compared, since the machine's speed may have moved between two formats.
    """
    best = max((r.get("peak_share", 0.0) for r in results if 4 <= r["bits"] <= 5), default=0.0)
    for r in results:
        if best and r.get("peak_share"):
            r["of_best_4bit"] = round(best / r["peak_share"], 3)


def make_cells(columns: Sequence[tuple[str, str, str]], results: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Return the rows of a table; what was not measured is a dash."""
    return [[form.format(r[key]) if r.get(key) is not None else "-" for _, key, form in columns] for r in results]


def list_tables(results: Sequence[Result]) -> list[Sequence[tuple[str, str, str]]]:
    """Return the columns of the tables that have something to show."""
    small = any(SMALL_COLUMNS[-1][1] in r for r in results)
    return [FORMAT_COLUMNS, *[SMALL_COLUMNS] * small]


def make_section(results: Sequence[Result], machine: str) -> str:
    """Return the Markdown of all figures."""
    told = [f"{machine}; medians."]
    for key, text in (("read_gbps", "Plain reading reached {:.1f} GB/s"), ("peak_gops", "multiply-adds {:.0f} GOP/s")):
        values = [r[key] for r in results if key in r]
        if values:
            told.append(text.format(median(values)))
    parts = [f"{told[0]} {', '.join(told[1:])}".rstrip() + "." * (len(told) > 1)]
    for columns in list_tables(results):
        if columns is SMALL_COLUMNS:
            parts.append("Time of M tokens at once, relative to one:")
        parts.append(pages.make_table([title for title, _, _ in columns], make_cells(columns, results)))
    return "\n\n".join(parts)


def draw(results: Sequence[Result], machine: str) -> str:
    """Return the chart: decode as a share of plain reading, prefill beside the peak."""

    def tell(r: Result, *parts: tuple[str, str]) -> str:
        return ", ".join(form.format(r[key]) for key, form in parts if key in r) or "-"

    panels = [
        chart.Panel(
            "decode, share of plain reading",
            [r.get("decode_share") for r in results],
            [tell(r, ("decode_share", "{:.2f}"), ("decode_gbps", "{:.1f} GB/s")) for r in results],
            GOAL,
            f"goal {GOAL:g}",
            1.0,
        )
    ]
    tops = [r["peak_gops"] for r in results if "peak_gops" in r]
    if tops:
        values = [r.get("prefill_gops") for r in results]
        texts = [tell(r, ("prefill_gops", "{:.0f} GOP/s")) for r in results]
        peak = median(tops)
        panels.append(chart.Panel("prefill", values, texts, peak, f"multiply-adds alone {peak:.0f}", peak))
    return chart.make_chart(f"Number formats on {machine}", [r["format"] for r in results], panels)


def make_parser() -> argparse.ArgumentParser:
    """Return the options."""
    from edgellm.kernels.cpu.threads import default_threads
    from edgellm.kernels.formats import FORMATS

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    names: dict[str, Any] = {"type": str.upper, "default": list(FORMATS), "metavar": "NAME"}
    add("--formats", nargs="+", help="formats to measure (default: all)", **names)
    add("--only", nargs="+", default=list(PHASES), choices=PHASES, help="phases to measure (default: all)")
    numbers = {
        "threads": (default_threads(), "threads"),
        "rounds": (15, "times decode is measured; prefill a third of them"),
        "tokens": (PREFILL_TOKENS, "tokens of prefill"),
        "megabytes": (300, "packed weights that decode passes through, more than caches hold"),
        "hidden": (2048, "width of the model"),
        "ffn": (8192, "width of its feed-forward layers"),
    }
    for name, (default, text) in numbers.items():
        flags = [f"-{name[0]}"] * (name in ("threads", "rounds")) + [f"--{name}"]
        add(*flags, type=int, default=default, metavar="N", help=f"{text} (default: {default})")
    add("--markdown", type=Path, metavar="FILE", help="page whose section `formats` is written")
    add("--chart", type=Path, metavar="FILE", help="SVG file to write")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Measure; print a table and a JSON line. Return 2 where an option or a page does not fit."""
    from edgellm import EdgeLLMError
    from edgellm.kernels import formats

    parser = make_parser()
    args = parser.parse_args(argv)
    require_at_least(parser, args, threads=1, rounds=1, tokens=1, megabytes=1, hidden=1, ffn=1)
    if args.hidden % 256 or args.ffn % 256:
        parser.error("--hidden and --ffn must be multiples of 256, the largest group of any format")
    results: list[Result] = []
    try:
        for name in args.formats:
            formats.get(name)  # a misspelt one is told now, not after minutes
        for name in args.formats:
            results.append(measure_format(name, args))
            told = zip(FORMAT_COLUMNS, make_cells(FORMAT_COLUMNS, results[-1:])[0], strict=True)
            print(
                ", ".join(f"{title} {cell}" for (title, *_), cell in told if cell != "-"), file=sys.stderr, flush=True
            )
        compare_prefill(results)
        machine = pages.describe_machine(args.threads)
        for columns in list_tables(results):
            print(pages.make_columns([title for title, _, _ in columns], make_cells(columns, results)) + "\n")
        if args.markdown:
            pages.put_section(args.markdown, "formats", make_section(results, machine))
        if args.chart:
            args.chart.write_text(draw(results, machine), encoding="utf-8", newline="\n")
    except (EdgeLLMError, pages.PageError) as error:
        print(f"bench_formats: {error}", file=sys.stderr)
        return 2
    settings = {name: value for name, value in vars(args).items() if name not in ("markdown", "chart", "formats")}
    print(json.dumps({"machine": machine, **settings, "results": results}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
