"""Measure everything on docs/performance.md and write it there: one command, for a machine that does nothing else.

    python tools/make_performance.py [--synthesise FOLDER] [--peer-python PATH] [--models MODEL ...] [--skip STEP ...]

Runs the other tools one after the other, each as a program; each rewrites its section of the page, and the chart. Big
random models of 1B (Q4_0, Q4_K_M, Q8_0; 2.5 GB) are made in FOLDER, or found there from last time, and join the
comparison. Takes about an hour, a few minutes with --quick. Exit code: that of the first tool that failed.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

TOOLS = Path(__file__).resolve().parent
PAGE = TOOLS.parent / "docs" / "performance.md"
MODELS = ("smollm2", "gemma3-270m")
BIG_FORMATS = ("Q4_0", "Q4_K_M", "Q8_0")
STEPS = ("peak", "formats", "threads", "peers", "peers-busy", "peers-deep", "cache-types")
DEPTH = "4096"

Command = tuple[str, list[str]]  # step, arguments of Python


def list_commands(args: argparse.Namespace) -> list[Command]:
    """Return what has to be run, in order."""
    page, models = ["--markdown", str(args.page)], list(args.models)
    commands: list[Command] = []
    if args.synthesise:
        for form in BIG_FORMATS:
            path = args.synthesise / f"llama-1b-random-{form}.gguf"
            models.append(str(path))
            if not path.exists():
                options = ["--vocabulary", str(args.vocabulary), "--format", form]
                commands.append(("synthesise", [str(TOOLS / "synthesise.py"), str(path), *options]))
    rounds = ["-r", "3"] if args.quick else []
    peer = ["--peer-python", args.peer_python]
    peers = [str(TOOLS / "compare_peers.py"), *models, *peer, *page, *rounds]
    deep = [str(TOOLS / "compare_peers.py"), *args.models, *peer, *page, *rounds]
    chart = ["--chart", str(args.page.with_name("formats.svg"))]
    commands += [
        ("peak", [str(TOOLS / "peak.py"), *page, *rounds]),
        ("formats", [str(TOOLS / "bench_formats.py"), *page, *chart, *rounds]),
        ("threads", [str(TOOLS / "bench_threads.py"), args.models[0], *page, *rounds]),
        ("peers", peers),
        ("peers-busy", [*peers, "--busy"]),
        ("peers-deep", [*deep, "-d", DEPTH]),
        ("cache-types", [str(TOOLS / "cache_types.py"), *args.models, *peer, *page, *rounds]),
    ]
    return [command for command in commands if command[0] not in args.skip]


def make_parser() -> argparse.ArgumentParser:
    """Return the options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--models", nargs="+", default=list(MODELS), metavar="MODEL", help="real models (default: both aliases)")
    add("--synthesise", type=Path, metavar="FOLDER", help="where 1B models are made or found (default: without them)")
    add("--peer-python", default=sys.executable, metavar="PATH", help="interpreter that has llama_cpp")
    add("--page", type=Path, default=PAGE, metavar="FILE", help="page to rewrite (default: docs/performance.md)")
    add("--skip", nargs="+", default=[], choices=STEPS, help="steps to leave out")
    add("--quick", action="store_true", help="three rounds of everything: to see whether it works")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run everything."""
    from edgellm import EdgeLLMError, hub

    args = make_parser().parse_args(argv)
    if args.synthesise:
        args.synthesise.mkdir(parents=True, exist_ok=True)
        try:
            args.vocabulary = hub.resolve(args.models[0])
        except EdgeLLMError as error:
            print(f"make_performance: {error}", file=sys.stderr)
            return 2
    for _, arguments in list_commands(args):
        print(f"\n$ python {shlex.join(arguments)}", flush=True)
        if code := subprocess.call([sys.executable, *arguments]):
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
