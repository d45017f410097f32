"""Ask `edgellm serve` thousands of things at once, good and bad, with clients that leave; then look for what is left behind.

    python tools/soak_server.py [MODEL] [-n 5000] [-c 8] [--seed 0] [--max-context 1024] [-t THREADS]

The server is a process of its own. A fifth of the requests is warm-up. Afterwards its memory must be within 2 % of what it was
then, its threads and open files no more; no request open, no sequence running or waiting, no cache block in use; chats that
were asked before anything else have the same answers, among the others and at the end; no status of 500 or above; nothing
in the log; and it must end when told to. The last line is JSON. Exit code 1: something was found. Next hop: `soak_requests.py`.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from statistics import median
from typing import Any

from arguments import require_at_least
from server_process import Server, serving
from soak_requests import Client, Seen, choose, fillers, known_chats

MOST_GROWTH = 0.02
WARM_UP_SHARE = 0.2


def fill_cache(server: Server, client: Client) -> None:
    """Touch all of the cache's memory, so that what it comes to use later is not taken for a leak."""
    free = server.gauges()["cache_blocks_free"]
    for chat in fillers(client.max_context, 200):
        client.ask("POST", "/v1/chat/completions", chat)
        if (now := server.gauges()["cache_blocks_free"]) >= free:
            break
        free = now


def run(server: Server, client: Client, numbers: range, args: argparse.Namespace) -> list[tuple[str, Seen, float]]:
    """Send requests by some clients at once. -> kind, what was seen, seconds, for each."""
    found, left, lock = list[tuple[str, Seen, float]](), iter(numbers), threading.Lock()

    def work() -> None:
        while True:
            with lock:
                number = next(left, None)
            if number is None:
                return
            kind, rng = choose(args.seed, number)
            start = time.monotonic()
            try:
                seen = kind(client, rng)
            except Exception as error:
                seen = Seen(-1, f"{type(error).__name__}: {error}")
            found.append((kind.__name__, seen, time.monotonic() - start))

    clients = [threading.Thread(target=work) for _ in range(args.clients)]
    for thread in clients:
        thread.start()
    while any(thread.is_alive() for thread in clients):
        time.sleep(0.1)
        if args.verbose and len(found) // 100 != getattr(args, "told", -1):
            args.told = len(found) // 100
            print(
                len(found), f"{server.eye.memory_info().rss / 1e6:.1f} MB", server.gauges(), file=sys.stderr, flush=True
            )
    return found


def soak(server: Server, args: argparse.Namespace) -> dict[str, Any]:
    """Do all of it. -> figures; "faults" says what must not be."""
    server.wait_until_ready()
    client = Client(server.address, args.max_context)
    client.known = [(chat, client.text_of(chat)) for chat in known_chats(args.max_context)]
    fill_cache(server, client)
    num_warm = int(args.requests * WARM_UP_SHARE)
    seen = run(server, client, range(num_warm), args)
    server.settle()
    before = server.footprint()
    start = time.monotonic()
    seen += run(server, client, range(num_warm, args.requests), args)
    seconds = time.monotonic() - start
    gauges = server.settle()
    after = server.footprint()
    again = [client.text_of(chat) for chat, _ in client.known]
    code = server.end()
    faults = [f"{kind}: {one.fault}" for kind, one, _ in seen if one.fault is not None]
    faults += [f"status {one.status} for {kind}" for kind, one, _ in seen if one.status >= 500]
    faults += check_rest(before, after, gauges, args.growth)
    faults += [f"after all {a!r} instead of {b!r}" for a, (_, b) in zip(again, client.known, strict=True) if a != b]
    if code not in (0, -signal.SIGTERM):  # uvicorn ends by the signal that it was sent
        faults.append(f"told to end, it {'did not' if code is None else f'ended with {code}'}")
    if "Traceback" in server.said or "failed" in server.said:
        faults.append(f"its log: {server.said[-2000:]}")
    return {
        "before": before,
        "after": after,
        "gauges": gauges,
        "seconds": seconds,
        "faults": faults,
        "table": table(seen),
    }


def check_rest(before: dict[str, float], after: dict[str, float], gauges: dict[str, int], growth: float) -> list[str]:
    """What is left behind, in words."""
    faults = []
    for name in ("requests_open", "sequences_running", "sequences_waiting", "cache_blocks_in_use"):
        if gauges.get(name) != 0:
            faults.append(f"{name} is {gauges.get(name)} when nobody asks")
    if after["resident"] > before["resident"] * (1 + growth):
        faults.append(f"memory grew from {before['resident'] / 1e6:.1f} to {after['resident'] / 1e6:.1f} MB")
    for name, slack in (("threads", 2), ("files", 2)):  # a pool's threads come when they are needed
        if after[name] > before[name] + slack:
            faults.append(f"{name} grew from {before[name]:.0f} to {after[name]:.0f}")
    return faults


def table(seen: Sequence[tuple[str, Seen, float]]) -> dict[str, dict[str, Any]]:
    """Per kind: how many, with which statuses, and the median of their seconds."""
    rows: dict[str, dict[str, Any]] = {}
    for kind in sorted({kind for kind, _, _ in seen}):
        mine = [(one, s) for name, one, s in seen if name == kind]
        statuses = Counter("left" if one.status == 0 else str(one.status) for one, _ in mine)
        rows[kind] = {"requests": len(mine), "statuses": dict(statuses), "median_s": median(s for _, s in mine)}
    return rows


def show(figures: dict[str, Any]) -> None:
    """Print what was found for people."""
    for kind, row in figures["table"].items():
        statuses = ", ".join(f"{status} x {count}" for status, count in sorted(row["statuses"].items()))
        print(f"{kind:22}{row['requests']:6}{row['median_s'] * 1e3:9.0f} ms   {statuses}")
    for name, unit in (("resident", 1e6), ("anonymous", 1e6), ("threads", 1), ("files", 1)):
        a, b = figures["before"][name] / unit, figures["after"][name] / unit
        print(f"{name:22}{a:10.1f} ->{b:10.1f}   {(b / a - 1) * 100:+.2f} %")
    print("left behind:           " + ", ".join(f"{k} {v}" for k, v in figures["gauges"].items() if "total" not in k))
    for fault in figures["faults"][:20]:
        print(f"FAULT {fault}")
    print("nothing was left behind" if not figures["faults"] else f"{len(figures['faults'])} faults")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tool and return its exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="smollm2", metavar="MODEL")
    parser.add_argument("-n", "--requests", type=int, default=5000, metavar="N")
    parser.add_argument("-c", "--clients", type=int, default=8, metavar="N")
    parser.add_argument("-t", "--threads", type=int, metavar="N")
    parser.add_argument("--max-context", type=int, default=1024, metavar="N")
    parser.add_argument("--seed", type=int, default=0, metavar="N")
    parser.add_argument("--growth", type=float, default=MOST_GROWTH, metavar="SHARE", help="of memory (default: 0.02)")
    parser.add_argument("-v", "--verbose", action="store_true", help="say every hundred requests how it goes")
    args = parser.parse_args(arguments)
    require_at_least(parser, args, requests=10, clients=1, max_context=128)
    options = ["--max-num-seqs", "4", "--max-queue", str(args.clients + 2), "--max-context", str(args.max_context)]
    options += ["-t", str(args.threads)] if args.threads else []
    with serving(args.model, *options) as server:
        figures = soak(server, args)
    show(figures)
    settings = {name: value for name, value in vars(args).items() if name not in ("verbose", "told")}
    print(json.dumps({"settings": settings, **figures}))
    return 1 if figures["faults"] else 0


if __name__ == "__main__":
    sys.exit(main())
