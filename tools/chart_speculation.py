"""Measure speed-up against acceptance and draft length, and draw it.

    python tools/chart_speculation.py [MODEL] [-n 128] [-r ROUNDS] [-t THREADS] [--chart FILE.svg] [--markdown FILE]

The answer is written down in advance and so are the guesses: of each, a given share of ids is right, at random. What is
measured is the time alone. Values are medians of paired ratios to plain decoding in the same round. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import chart
import pages
from arguments import require_at_least
from bench_speculation import ScriptedChooser, answer
from speculation_tasks import STORY

if TYPE_CHECKING:
    from edgellm import LLM

LENGTHS = (1, 2, 3, 5, 7, 11, 15, 23)
SHARES = (1.0, 0.9, 0.8, 0.6, 0.3)


class ScriptedProposer:
    """Guesses what is written down; each id is right with probability `share`."""

    step_s = None

    def __init__(self, script: list[int], num_prompt: int, share: float, seed: int) -> None:
        self._script, self._num_prompt, self._share = script, num_prompt, share
        self._choose = random.Random(seed)

    def propose(self, token_ids: Sequence[int], max_tokens: int) -> Any:
        """See edgellm.speculative.Proposer."""
        from edgellm.speculative.proposer import Guess

        start = len(token_ids) - self._num_prompt
        right = [self._script[(start + i) % len(self._script)] for i in range(max_tokens)]
        return Guess([i if self._choose.random() < self._share else i ^ 1 for i in right], [1] * len(right))

    def close(self) -> None:
        """Nothing is held."""


def decode_tps(llm: LLM, prompt: list[int], script: list[int], args: argparse.Namespace) -> float:
    """Decode the script. -> tokens per second."""
    from edgellm import SamplingParams

    params = SamplingParams(max_tokens=args.tokens)
    return float(answer(llm, prompt, params, ScriptedChooser(script)).timings.decode_tps)


def measure(llm: LLM, args: argparse.Namespace) -> dict[tuple[float, int], float]:
    """Return {(share, length): speed-up}."""
    from edgellm.speculative import Speculator

    engine = llm.loaded.engine
    script, prompt = llm.tokenize(STORY), llm.tokenize("Tell me a story.")
    ratios: dict[tuple[float, int], list[float]] = {(share, n): [] for share in SHARES for n in LENGTHS}
    for number in range(args.rounds):
        for length in LENGTHS:
            engine.use(None)
            plain = decode_tps(llm, prompt, script, args)
            for share in SHARES:
                proposer = ScriptedProposer(script, len(prompt), share, number)
                engine.use(Speculator(lambda _, it=proposer: [it], length, always=True))
                ratios[share, length].append(decode_tps(llm, prompt, script, args) / plain)
    return {key: round(median(values), 3) for key, values in ratios.items()}


def draw(gains: dict[tuple[float, int], float], title: str) -> str:
    """The chart: a panel per share of right ids, a bar per length."""
    top = max(gains.values())
    panels = [
        chart.Panel(
            f"{share:.0%} of guessed ids right",
            [gains[share, n] for n in LENGTHS],
            [f"{gains[share, n]:.2f}" for n in LENGTHS],
            1.0,
            "plain decoding",
            top,
        )
        for share in (1.0, 0.8, 0.3)
    ]
    return chart.make_chart(title, [f"{n} guessed" for n in LENGTHS], panels)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print a table, draw, print one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("model", nargs="?", default="smollm2", help="a path, an alias or owner/repo (default: smollm2)")
    add("-n", "--tokens", type=int, default=128, metavar="N", help="tokens of an answer (default: %(default)s)")
    add("-r", "--rounds", type=int, default=3, metavar="N", help="times each is measured (default: %(default)s)")
    add("-t", "--threads", type=int, default=2, metavar="N", help="threads (default: %(default)s)")
    add("--chart", type=Path, metavar="FILE", help="SVG file to write")
    add("--markdown", type=Path, metavar="FILE", help="page whose section `speculation-lengths` is written")
    args = parser.parse_args(argv)
    require_at_least(parser, args, tokens=2, rounds=1, threads=1)
    from edgellm import LLM

    with LLM.load(args.model, threads=args.threads, max_context=1024, spec="off") as llm:
        gains = measure(llm, args)
    titles = ["guessed", *(f"{share:.0%} right" for share in SHARES)]
    rows = [[str(n), *(f"{gains[share, n]:.2f}" for share in SHARES)] for n in LENGTHS]
    print(pages.make_columns(titles, rows) + "\n")
    machine = pages.describe_machine(args.threads)
    if args.chart:
        title = f"Speed-up by speculation, {args.model}, {machine}"
        args.chart.write_text(draw(gains, title), encoding="utf-8", newline="\n")
    if args.markdown:
        told = f"{machine}: {args.model}, medians of {args.rounds} rounds."
        pages.put_section(args.markdown, "speculation-lengths", f"{told}\n\n{pages.make_table(titles, rows)}")
    cells = [{"share": share, "length": n, "speedup": gain} for (share, n), gain in gains.items()]
    print(json.dumps({"model": args.model, "threads": args.threads, "rounds": args.rounds, "results": cells}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
