"""Measure what speculation gives: decode with it on and off, in one run, beside llama.cpp's own prompt lookup.

    python tools/bench_speculation.py [MODEL ...] [--scripted] [-n 256] [-r ROUNDS] [-t THREADS] [--peer-python PATH]
                                      [--markdown FILE]

Every task of speculation_tasks.py is decoded in turn with speculation off and on (by one load of the model: two lie
differently in memory), and by llama-cpp-python with and without LlamaPromptLookupDecoding (the better of 2 and 10 ids, in a
process of its own; the tasks that are greedy). Speed-ups are medians of paired ratios. The ids with speculation on and off are
compared: a difference ends the run with exit code 1. --scripted: the model's text has no sense (random weights), so what it
says is written down in advance; only the time is its own. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import pages
from arguments import require_at_least
from speculation_tasks import TASKS, Task

if TYPE_CHECKING:
    from edgellm import LLM, Completion, SamplingParams
    from edgellm.speculative import Speculator

PEER = Path(__file__).with_name("speculation_peer.py")
PEER_GUESSES = (2, 10)
CONTEXT = 2048
TITLES = ("task", "tokens", "guessed", "right", "off, tok/s", "on, tok/s", "speed-up", "wanted", "llama.cpp", "lookup")


class WrongProposer:
    """Guesses what never comes: the last id again, turned into another."""

    step_s = None

    def __init__(self, vocab_size: int) -> None:
        self._vocab_size = vocab_size

    def propose(self, token_ids: Sequence[int], max_tokens: int) -> Any:
        """See edgellm.speculative.Proposer."""
        from edgellm.speculative.proposer import Guess

        return Guess([(token_ids[-1] + 12345 + i) % self._vocab_size for i in range(max_tokens)], [1] * max_tokens)

    def close(self) -> None:
        """Nothing is held."""


class ScriptedChooser:
    """Says what was written down, whatever the logits; the time of a step is the model's own."""

    is_complete = False
    num_held = 0

    def __init__(self, script: list[int]) -> None:
        self._script = script

    def use(self, vocabulary: Any) -> None:
        """Nothing is scanned."""

    def choose(self, logits: Any, token_ids: Sequence[int], num_prompt: int, forbidden: Any = ()) -> Any:
        """See edgellm.choosing.Chooser."""
        from edgellm.choosing import Choice

        return Choice(self._script[(len(token_ids) - num_prompt) % len(self._script)])

    def accept(self, token_id: int) -> int:
        """Nothing is taken back."""
        return 0

    def forced(self) -> list[int]:
        """Nothing is forced."""
        return []


class Peer:
    """llama-cpp-python in a process of its own."""

    def __init__(self, python: str, model: str, threads: int) -> None:
        command = [python, str(PEER), model, str(threads), str(CONTEXT)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.version = self._read()["version"]

    def run(self, ids: list[int], tokens: int, script: list[int], guess: int) -> float:
        """Tokens per second."""
        assert self._process.stdin is not None
        request = {"ids": ids, "tokens": tokens, "script": script, "guess": guess}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        done = self._read()
        return float(done["tokens"]) / max(float(done["seconds"]), 1e-9)

    def close(self) -> None:
        """End the process."""
        self._process.terminate()
        self._process.communicate()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        message: dict[str, Any] = json.loads(line) if line else {"error": "the peer's process ended"}
        if "error" in message:
            raise RuntimeError(f"llama.cpp: {message['error']}")
        return message


def prompt_ids(llm: LLM, task: Task, scripted: bool) -> list[int]:
    """The ids that the model is given."""
    if task.raw or scripted or llm.loaded.template is None:
        return llm.tokenizer.encode(task.text, add_bos=llm.tokenizer.add_bos)
    return llm.loaded.template.render_ids([{"role": "user", "content": task.text}])


def answer(llm: LLM, ids: list[int], params: SamplingParams, chooser: Any = None) -> Completion:
    """Answer a prompt by a chooser of one's own."""
    from edgellm.sequence import Sequence as Request
    from edgellm.stream import Stream

    return Stream(llm, Request(ids, params, chooser=chooser, created_s=time.perf_counter())).finish()


def decode(llm: LLM, task: Task, args: argparse.Namespace, number: int) -> Completion:
    """Answer a task."""
    from edgellm import SamplingParams

    ids = prompt_ids(llm, task, args.scripted)
    script = llm.tokenize(task.answer)
    tokens = min(args.tokens, len(script)) if args.scripted else args.tokens
    params = SamplingParams(max_tokens=tokens, temperature=task.temperature, seed=number)
    return answer(llm, ids, params, ScriptedChooser(script) if args.scripted else None)


def measure(
    task: Task, llm: LLM, speculator: Speculator, peer: Peer | None, args: argparse.Namespace
) -> dict[str, Any]:
    """One row of the table. Raises ValueError if speculation changed the text."""
    make = speculator.make_proposers
    if task.wrong:
        speculator.make_proposers = lambda sequence: [WrongProposer(llm.vocab_size)]
    speeds: list[list[float]] = [[], []]
    theirs: dict[int, list[float]] = {guess: [] for guess in (0, *PEER_GUESSES)}
    try:
        for number in range(args.rounds + 1):
            for side in (0, 1) if number % 2 == 0 else (1, 0):
                time.sleep(0.1)
                llm.loaded.engine.use(speculator if side else None)
                done = decode(llm, task, args, number)
                if number:  # the first round warms up
                    speeds[side].append(done.timings.decode_tps)
                if side:
                    guessed = done
                else:
                    plain = done
            if guessed.token_ids != plain.token_ids:
                raise ValueError(f"{task.name}: speculation changed the answer")
            if number and peer is not None and not task.temperature:
                ids, script = prompt_ids(llm, task, args.scripted), llm.tokenize(task.answer)
                for guess, values in theirs.items():
                    time.sleep(0.1)
                    count = len(plain.token_ids) - 1
                    values.append(peer.run(ids, count, script if args.scripted else [], guess))
    finally:
        speculator.make_proposers = make
    best = max((median(theirs[guess]) for guess in PEER_GUESSES if theirs[guess]), default=None)
    return {
        "task": task.name,
        "tokens": len(guessed.token_ids),
        "draft_tokens": guessed.timings.draft_tokens,
        "accepted_tokens": guessed.timings.accepted_tokens,
        "off_tps": round(median(speeds[0]), 1),
        "on_tps": round(median(speeds[1]), 1),
        "speedup": round(median(b / a for a, b in zip(*speeds, strict=True)), 3),
        "wanted": task.minimum,
        "peer_tps": round(median(theirs[0]), 1) if theirs[0] else None,
        "peer_lookup_tps": round(best, 1) if best else None,
    }


def make_rows(results: Sequence[dict[str, Any]]) -> list[list[str]]:
    """The cells of the table."""

    def cell(value: float | None) -> str:
        return "-" if value is None else f"{value:.0f}"

    return [
        [
            str(row["task"]),
            str(row["tokens"]),
            str(row["draft_tokens"]),
            str(row["accepted_tokens"]),
            cell(row["off_tps"]),
            cell(row["on_tps"]),
            f"{row['speedup']:.2f}",
            f"{row['wanted']:.2f}",
            cell(row["peer_tps"]),
            cell(row["peer_lookup_tps"]),
        ]
        for row in results
    ]


def compare(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """Measure all tasks on one model and print its table."""
    from edgellm import LLM, hub

    path = str(hub.resolve(name))
    peer = Peer(args.peer_python, path, args.threads) if args.peer_python else None
    with LLM.load(path, spec="ngram", threads=args.threads, max_context=CONTEXT) as llm:
        speculator = llm.loaded.engine.speculator
        assert speculator is not None
        try:
            rows = [measure(task, llm, speculator, peer, args) for task in TASKS]
        finally:
            if peer is not None:
                peer.close()
        times = speculator.times
        relative = {rows_: round(times.relative(rows_), 2) for rows_ in sorted(times.measured)}
    print(f"{name}: {args.threads} threads, {args.rounds} rounds{', scripted' if args.scripted else ''}")
    print(pages.make_columns(TITLES, make_rows(rows)))
    print(f"time of M rows: {relative}\n", flush=True)
    return {"model": name, "scripted": args.scripted, "rows": rows, "relative": relative}


def make_section(results: Sequence[dict[str, Any]], args: argparse.Namespace) -> str:
    """The Markdown of all models."""
    parts = [f"{pages.describe_machine(args.threads)}: decode in tokens/s, medians of {args.rounds} rounds."]
    for result in results:
        scripted = ", scripted answers" if result["scripted"] else ""
        parts.append(f"**{result['model']}**{scripted}\n\n{pages.make_table(TITLES, make_rows(result['rows']))}")
    return "\n\n".join(parts)


def make_parser() -> argparse.ArgumentParser:
    """The options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("models", nargs="*", default=["smollm2"], help="a path, an alias or owner/repo (default: smollm2)")
    add("--scripted", action="store_true", help="answers are written down in advance")
    add("-n", "--tokens", type=int, default=256, metavar="N", help="longest answer (default: %(default)s)")
    add("-r", "--rounds", type=int, default=3, metavar="N", help="times each is measured (default: %(default)s)")
    add("-t", "--threads", type=int, default=2, metavar="N", help="of each side (default: %(default)s)")
    add("--peer-python", metavar="PATH", help="interpreter that has llama_cpp; without it the peer is left out")
    add("--markdown", type=Path, metavar="FILE", help="page whose section `speculation` is written")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print tables and one JSON line."""
    parser = make_parser()
    args = parser.parse_args(argv)
    require_at_least(parser, args, tokens=2, rounds=1, threads=1)
    from edgellm import EdgeLLMError

    try:
        results = [compare(name, args) for name in args.models]
    except (EdgeLLMError, RuntimeError) as error:
        print(f"bench_speculation: {error}", file=sys.stderr)
        return 2
    except ValueError as error:
        print(f"bench_speculation: {error}", file=sys.stderr)
        return 1
    if args.markdown:
        pages.put_section(args.markdown, "speculation", make_section(results, args))
    print(json.dumps({"threads": args.threads, "rounds": args.rounds, "results": results}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
