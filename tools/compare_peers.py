"""Compare edgellm's speed with llama.cpp's (through llama-cpp-python) on this machine, both in one run.

    python tools/compare_peers.py [MODEL ...] [-t THREADS] [-p 512] [-n 128] [-d DEPTH] [-r ROUNDS] [--busy]
                                  [--peer-python PATH] [--markdown FILE]

Each side holds the model in a process of its own that sleeps while the other measures. A round measures both, in turn
first; only figures of the same run may be compared, since a machine's speed moves by a third between minutes. --busy
keeps one more process spinning beside them, as on a laptop in use. The peer may live in another environment:
--peer-python names the interpreter that has llama_cpp. --markdown writes the section "peers" of a page, "peers-busy" with
--busy, "peers-deep" at a depth. The last line is JSON. Exit code 2: the peer is missing.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Protocol

import pages
from arguments import require_at_least

SIDES = ("edgellm", "llama.cpp")
WORKER = Path(__file__).with_name("compare_worker.py")
WARM_UP_TOKENS = 16
SETTLE_S = 0.2  # idle threads stop spinning well within this
INSTALL_HINT = (
    "pip install 'edgellm[peers]' builds it in about ten minutes; --peer-python names an interpreter that has it"
)


class WorkerError(Exception):
    """A worker said that something is wrong, or died."""


class Asked(Protocol):
    """A side that answers requests: `Worker`, or a stand-in of a test."""

    hello: dict[str, Any]

    def ask(self, do: str, **options: Any) -> float: ...


class Worker:
    """A side in a process of its own. hello: its version and vocab_size."""

    def __init__(
        self, side: str, python: str, model: str, threads: int, context: int, cache_type: str | None = None
    ) -> None:
        self.side = side
        command = [python, str(WORKER), side, model, str(threads), str(context), *([cache_type] if cache_type else [])]
        try:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        except OSError as error:
            raise WorkerError(f"{python} cannot be started: {error.strerror}") from None
        try:
            self.hello = self._read()
        except BaseException:
            self.close()
            raise

    def ask(self, do: str, **options: Any) -> float:
        """Return the answer's value. Raises WorkerError."""
        assert self._process.stdin is not None
        time.sleep(SETTLE_S)
        self._process.stdin.write(json.dumps({"do": do, **options}) + "\n")
        self._process.stdin.flush()
        return float(self._read()["value"])

    def close(self) -> None:
        """End the process."""
        self._process.terminate()
        self._process.communicate()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise WorkerError(f"the {self.side} process ended with code {self._process.wait()}")
        message: dict[str, Any] = json.loads(line)
        if "error" in message:
            hint = f"; {INSTALL_HINT}" if message.get("missing") and self.side != SIDES[0] else ""
            raise WorkerError(f"{self.side}: {message['error']}{hint}")
        return message


@contextlib.contextmanager
def busy_process(wanted: bool) -> Iterator[None]:
    """Keep one process spinning, if wanted."""
    if not wanted:
        yield
        return
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def measure(workers: Sequence[Asked], args: argparse.Namespace) -> dict[str, list[list[float]]]:
    """Return {"decode": [ours, theirs], "prefill": ..., "bandwidth": [ours]}: values per second, one each round."""
    choose = random.Random(0)
    vocab_size = min(worker.hello["vocab_size"] for worker in workers)

    def ids(count: int) -> list[int]:
        return [choose.randrange(vocab_size) for _ in range(count)]

    for worker in workers:
        worker.ask("decode", ids=ids(1), tokens=WARM_UP_TOKENS)
    results: dict[str, list[list[float]]] = {"decode": [[], []], "prefill": [[], []], "bandwidth": [[]]}
    start = ids(max(args.depth, 1))
    for number in range(args.rounds):
        results["bandwidth"][0].append(workers[0].ask("bandwidth"))
        prompt = start[: args.depth] + ids(args.prompt_tokens)
        order = (0, 1) if number % 2 == 0 else (1, 0)
        for side in order:
            seconds = workers[side].ask("decode", ids=start, tokens=args.decode_tokens)
            results["decode"][side].append(args.decode_tokens / seconds)
        for side in order:
            seconds = workers[side].ask("prefill", ids=prompt, depth=args.depth)
            results["prefill"][side].append(args.prompt_tokens / seconds)
    return results


def summarize(results: dict[str, list[list[float]]], bytes_per_token: float) -> dict[str, float]:
    """Medians, extremes, both ratios; the share of plain reading that our decode uses, as a median over rounds."""
    summary: dict[str, float] = {}
    for name in ("decode", "prefill"):
        ours, theirs = results[name]
        for side, values in (("", ours), ("peer_", theirs)):
            summary[f"{side}{name}_tps"] = round(median(values), 2)
            summary[f"{side}{name}_tps_min"] = round(min(values), 2)
            summary[f"{side}{name}_tps_max"] = round(max(values), 2)
        summary[f"{name}_ratio"] = round(median(ours) / median(theirs), 3)
        summary[f"{name}_paired_ratio"] = round(median(a / b for a, b in zip(ours, theirs, strict=True)), 3)
    reading = results["bandwidth"][0]
    summary["read_bandwidth_gbps"] = round(median(reading) / 1e9, 2)
    shares = [bytes_per_token * tps / bytes for tps, bytes in zip(results["decode"][0], reading, strict=True)]
    summary["bandwidth_share"] = round(median(shares), 4)
    return summary


def table(model: str, summary: dict[str, float], args: argparse.Namespace) -> str:
    """Return the figures of one model for people."""
    load = ", beside one busy process" if args.busy else ""
    lines = [f"{model}: {args.threads} threads, {args.rounds} rounds, depth {args.depth}{load}"]
    lines.append(f"{'tokens/s':14} {'edgellm':>26} {'llama.cpp':>26} {'ratio':>7} {'paired':>7}")
    for name, count in (("decode", args.decode_tokens), ("prefill", args.prompt_tokens)):
        cells = [
            f"{summary[f'{side}{name}_tps']:.1f} [{summary[f'{side}{name}_tps_min']:.1f} .. "
            f"{summary[f'{side}{name}_tps_max']:.1f}]"
            for side in ("", "peer_")
        ]
        ratios = f"{summary[f'{name}_ratio']:>7.2f} {summary[f'{name}_paired_ratio']:>7.2f}"
        lines.append(f"{f'{name} {count}':14} {cells[0]:>26} {cells[1]:>26} {ratios}")
    share = f"our decode uses {summary['bandwidth_share']:.0%} of {summary['read_bandwidth_gbps']:.1f} GB/s"
    return "\n".join([*lines, share])


def make_section(results: Sequence[dict[str, Any]], args: argparse.Namespace) -> str:
    """Return the Markdown of all models."""
    titles = ["model", "decode, edgellm", "llama.cpp", "ratio", "of reading"]
    titles += ["prefill, edgellm", "llama.cpp", "ratio"]
    rows = []
    for r in results:
        row = [Path(r["model"]).name]
        for name in ("decode", "prefill"):
            row += [f"{r[f'{side}{name}_tps']:.1f}" for side in ("", "peer_")] + [f"{r[f'{name}_paired_ratio']:.2f}"]
            row += [f"{r['bandwidth_share']:.2f}"] * (name == "decode")
        rows.append(row)
    beside = ", beside one busy process" if args.busy else ""
    what = f"decode of {args.decode_tokens} and prefill of {args.prompt_tokens} tokens"
    told = f"{what} at depth {args.depth}, in tokens/s{beside}; medians of {args.rounds} rounds, paired ratios"
    versions = f"llama-cpp-python {results[0][SIDES[1]]}"
    return f"{pages.describe_machine(args.threads)}, {versions}: {told}.\n\n{pages.make_table(titles, rows)}"


def compare(name: str, model: str, args: argparse.Namespace) -> dict[str, Any]:
    """Measure one model on both sides, print its table and return what goes into the JSON line."""
    context = args.depth + max(args.prompt_tokens, args.decode_tokens) + WARM_UP_TOKENS
    with contextlib.ExitStack() as stack:
        workers = []
        for side, python in zip(SIDES, (sys.executable, args.peer_python), strict=True):
            workers.append(Worker(side, python, model, args.threads, context))
            stack.callback(workers[-1].close)
        with busy_process(args.busy):
            results = measure(workers, args)
        half_way = args.depth + args.decode_tokens // 2
        summary = summarize(results, workers[0].ask("bytes_per_token", depth=half_way))
    print(table(name, summary, args) + "\n", flush=True)
    versions = {side: worker.hello["version"] for side, worker in zip(SIDES, workers, strict=True)}
    return {"model": name, **versions, **summary}


def make_parser() -> argparse.ArgumentParser:
    """Return the options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add(
        "models",
        nargs="*",
        default=["smollm2", "gemma3-270m"],
        help="a path, an alias or owner/repo (default: both aliases)",
    )
    add("-t", "--threads", type=int, default=2, metavar="N", help="threads of each side (default: %(default)s)")
    add("-p", "--prompt-tokens", type=int, default=512, metavar="N", help="tokens of prefill (default: %(default)s)")
    add("-n", "--decode-tokens", type=int, default=128, metavar="N", help="tokens of decode (default: %(default)s)")
    add(
        "-d",
        "--depth",
        type=int,
        default=0,
        metavar="N",
        help="tokens in the cache before either (default: %(default)s)",
    )
    add("-r", "--rounds", type=int, default=5, metavar="N", help="times each is measured (default: %(default)s)")
    add("--busy", action="store_true", help="keep one more process spinning meanwhile")
    add(
        "--peer-python",
        default=sys.executable,
        metavar="PATH",
        help="interpreter that has llama_cpp (default: this one)",
    )
    add("--markdown", type=Path, metavar="FILE", help="page whose section `peers` is written")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Compare all models; print tables, then one JSON line. Return 2 where something is missing."""
    parser = make_parser()
    args = parser.parse_args(argv)
    require_at_least(parser, args, threads=1, prompt_tokens=1, decode_tokens=1, depth=0, rounds=1)
    from edgellm import EdgeLLMError, hub

    try:
        results = [compare(name, str(hub.resolve(name)), args) for name in args.models]
        if args.markdown:
            section = "peers-busy" if args.busy else "peers-deep" if args.depth else "peers"
            pages.put_section(args.markdown, section, make_section(results, args))
    except (WorkerError, EdgeLLMError, pages.PageError) as error:
        print(f"compare_peers: {error}", file=sys.stderr)
        return 2
    settings = {key: value for key, value in vars(args).items() if key not in ("models", "peer_python", "markdown")}
    print(json.dumps({**settings, "results": results}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
