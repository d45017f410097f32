"""Load the server as several people would: tokens per second, times to the first token and between tokens, beside llama.cpp.

    python tools/bench_server.py [MODEL] [-c STREAMS] [-q REQUESTS] [-n TOKENS] [-r ROUNDS] [-t THREADS] [--peer-python PATH]

`edgellm serve` and, with --peer-python, `python -m llama_cpp.server` are started one after the other, each alone on the machine.
The same requests (questions as people ask them, answers of random length, temperature 0.8) are sent by one client and by
STREAMS clients, each with random pauses; then, while STREAMS / 2 answers run, a prompt of 2000 tokens is sent: how long did a
running answer wait for its next token? The rounds of one and of several streams take turns; ratios are medians of paired
ones. The last line is JSON.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any

import pages
from arguments import require_at_least
from server_load import Answer, Request, ask, disturb, long_text, make_requests, quantile, run

LONG_PROMPT = 2000
CONTEXT = 4096
START_S = 120
TITLES = ("server", "streams", "tok/s", "x of 1", "first p50", "first p99", "next p50", "next p99", "tok/chunk")


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def our_command(path: str, args: argparse.Namespace, port: int) -> list[str]:
    """`edgellm serve`."""
    words = [sys.executable, "-m", "edgellm", "serve", path, "--port", str(port), "--threads", str(args.threads)]
    return [*words, "--max-num-seqs", str(args.streams), "--max-context", str(CONTEXT), *args.option]


def their_command(path: str, args: argparse.Namespace, port: int) -> list[str]:
    """llama-cpp-python's server. By itself it breaks an answer off when another request comes: not here."""
    words = [args.peer_python, "-m", "llama_cpp.server", "--model", path, "--port", str(port)]
    threads = ["--n_threads", str(args.threads), "--n_threads_batch", str(args.threads)]
    return [*words, *threads, "--n_ctx", str(CONTEXT), "--interrupt_requests", "False"]


@contextlib.contextmanager
def serving(command: list[str], port: int) -> Iterator[None]:
    """Start a server, wait until it answers, end it."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    said: list[str] = []
    reader = threading.Thread(target=lambda: said.extend(process.stderr), daemon=True)  # type: ignore[arg-type]
    reader.start()
    try:
        end = time.monotonic() + START_S
        while not is_ready(port):
            if process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"{' '.join(command[:4])} does not answer: {''.join(said)[-500:]}")
            time.sleep(0.2)
        yield
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        reader.join()
        process.stderr.close()


def is_ready(port: int) -> bool:
    """True once a question of one token is answered. Raises RuntimeError if the server will never answer it."""
    try:
        error = ask(port, Request("Hi", 1, 0)).error
    except OSError:
        return False
    if error[:1] in ("4", "5") and not error.startswith("503"):
        raise RuntimeError(f"the server refuses to answer: {error}")
    return not error


def waits_beside(port: int, streams: int, tokens: int, tag: int) -> dict[str, float]:
    """Send a long prompt while answers run. -> the longest waits for a token meanwhile, and the long prompt's own wait."""
    running = [Request(f"{tag}-{i}: tell a very long story of the sea.", tokens, i) for i in range(streams)]
    answers, late = disturb(
        port, running, Request(f"Say what this is about: {long_text(LONG_PROMPT * 4 // 5, tag)}", 8, tag), 8
    )
    first = late.times[0] if late.times else float("inf")
    gaps = [
        later - sooner
        for answer in answers
        for sooner, later in zip(answer.times, answer.times[1:], strict=False)
        if later > late.sent_s and sooner < first
    ]
    return {
        "longest_s": max(gaps, default=0.0),
        "p99_s": quantile(gaps, 0.99) if gaps else 0.0,
        "first_s": first - late.sent_s,
    }


def measure(name: str, command: list[str], port: int, args: argparse.Namespace) -> dict[str, Any]:
    """All rounds with one server."""
    seen: dict[int, list[tuple[float, list[Answer]]]] = {1: [], args.streams: []}
    waits: list[dict[str, float]] = []
    with serving(command, port):
        run(port, make_requests(args.streams, args.tokens, 99), args.streams)  # warm
        for number in range(args.rounds):
            requests = make_requests(args.requests, args.tokens, number)
            for streams in seen if number % 2 == 0 else reversed(seen):
                # One stream has fewer requests: its speed does not depend on their number.
                share = requests if streams > 1 else requests[: max(2, args.requests // args.streams * 2)]
                fresh = [Request(one.prompt, one.max_tokens, one.seed + 500 * streams) for one in share]
                seen[streams].append(run(port, fresh, streams, number))
            waits.append(waits_beside(port, max(1, args.streams // 2), args.tokens * 3, number))
    errors = [answer.error for _, answers in [*seen[1], *seen[args.streams]] for answer in answers if answer.error]
    if errors:
        raise RuntimeError(f"{name}: {len(errors)} answers failed: {errors[0]}")
    return {"server": name, "streams": {n: summarise(rounds) for n, rounds in seen.items()}, "long": longest(waits)} | {
        "speedup": median(speed(b) / speed(a) for a, b in zip(seen[1], seen[args.streams], strict=True)),
    }


def speed(seen: tuple[float, list[Answer]]) -> float:
    """Tokens per second of a round."""
    return sum(answer.tokens for answer in seen[1]) / seen[0]


def summarise(rounds: list[tuple[float, list[Answer]]]) -> dict[str, float]:
    """Figures of one number of streams."""
    answers = [answer for _, found in rounds for answer in found]
    firsts, gaps = [a.ttft_s for a in answers if a.times], [gap for a in answers for gap in a.gaps_s]
    found = {"tps": median(speed(one) for one in rounds)}
    found |= {"first_p50_s": quantile(firsts, 0.5), "first_p99_s": quantile(firsts, 0.99)}
    found |= {"next_p50_s": quantile(gaps, 0.5), "next_p99_s": quantile(gaps, 0.99)}
    return found | {"tokens_per_chunk": sum(a.tokens for a in answers) / max(1, sum(len(a.times) for a in answers))}


def longest(waits: list[dict[str, float]]) -> dict[str, float]:
    """The worst of the rounds, and the middle one's time to the long prompt's first token."""
    return {
        "longest_s": max(one["longest_s"] for one in waits),
        "p99_s": median(one["p99_s"] for one in waits),
        "first_s": median(one["first_s"] for one in waits),
    }


def make_rows(results: Sequence[dict[str, Any]]) -> list[list[str]]:
    """The table's cells."""
    rows = []
    for result in results:
        for streams, figures in result["streams"].items():
            times = (figures[f"{what}_{share}_s"] for what in ("first", "next") for share in ("p50", "p99"))
            ratio = f"{result['speedup']:.2f}" if streams > 1 else "1"
            cells = [result["server"], str(streams), f"{figures['tps']:.0f}", ratio]
            rows.append([*cells, *(f"{1000 * t:.0f} ms" for t in times), f"{figures['tokens_per_chunk']:.2f}"])
    return rows


def make_parser() -> argparse.ArgumentParser:
    """The options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("model", nargs="?", default="smollm2", help="a path, an alias or owner/repo (default: %(default)s)")
    add("-c", "--streams", type=int, default=8, metavar="N", help="clients at the same time (default: %(default)s)")
    add("-q", "--requests", type=int, default=48, metavar="N", help="requests of a round (default: %(default)s)")
    add("-n", "--tokens", type=int, default=160, metavar="N", help="mean length of an answer (default: %(default)s)")
    add("-r", "--rounds", type=int, default=3, metavar="N", help="times each is measured (default: %(default)s)")
    add("-t", "--threads", type=int, default=2, metavar="N", help="of each server (default: %(default)s)")
    add("-o", "--option", action="append", default=[], metavar="WORD", help="one more word for `edgellm serve`")
    add("--peer-python", metavar="PATH", help="interpreter that has llama_cpp.server; without it the peer is left out")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print a table and one JSON line."""
    parser = make_parser()
    args = parser.parse_args(argv)
    require_at_least(parser, args, streams=2, requests=2, tokens=4, rounds=1, threads=1)
    from edgellm import EdgeLLMError, hub

    try:
        path = str(hub.resolve(args.model))
        port = free_port()
        results = [measure("edgellm", our_command(path, args, port), port, args)]
        if args.peer_python:
            port = free_port()
            results.append(measure("llama.cpp", their_command(path, args, port), port, args))
    except (EdgeLLMError, RuntimeError) as error:
        print(f"bench_server: {error}", file=sys.stderr)
        return 2
    print(pages.make_columns(TITLES, make_rows(results)))
    for result in results:
        waits = result["long"]
        print(
            f"{result['server']}: while a prompt of {LONG_PROMPT} tokens was read (its first token after"
            f" {waits['first_s']:.2f} s), a running answer waited {1000 * waits['longest_s']:.0f} ms at most,"
            f" {1000 * waits['p99_s']:.0f} ms in one of a hundred steps"
        )
    if len(results) == 2:
        ours, theirs = (result["streams"][args.streams]["tps"] for result in results)
        print(f"{args.streams} streams: {ours / theirs:.2f} times llama.cpp's tokens per second")
    print(json.dumps({"model": args.model, "threads": args.threads, "rounds": args.rounds, "results": results}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
