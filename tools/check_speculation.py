"""Compare every token and every row of logits with speculation on and off, bit for bit, over a long text.

    python tools/check_speculation.py [MODEL ...] [-n 10000] [--draft MODEL] [-t THREADS]

The model writes N tokens, greedily, in answers of 1000, once without guesses and once for each way to guess: n-grams as the cost
model wants them and as many as there is room for, a draft model (the model itself unless --draft names one), and proposers that
are always right, always wrong and right by chance. Prints a table; a difference is named and ends the run with exit code 1. The
last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import pages
from arguments import require_at_least

EACH = 1000
PROMPT = "In the year {year} the harbour was rebuilt. The first thing that people noticed was"
TITLES = ("model", "guesses", "tokens", "guessed", "right", "same ids", "same logits")


class Recorder:
    """Chooses greedily, as the sampler does, and keeps a checksum of every row that an id was chosen from."""

    def __init__(self, params: Any) -> None:
        from edgellm.choosing import Chooser

        self._chooser = Chooser(params)
        self.sums: list[int] = []

    def choose(self, logits: Any, *more: Any) -> Any:
        """See edgellm.choosing.Chooser."""
        self.sums.append(zlib.crc32(logits))
        return self._chooser.choose(logits, *more)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._chooser, name)


class Oracle:
    """Proposes from the known text: each id is right with a chance."""

    step_s = None

    def __init__(self, text: Sequence[int], chance: float, vocab_size: int) -> None:
        self._text, self._chance, self._vocab_size = list(text), chance, vocab_size
        self._random = random.Random(1)

    def propose(self, token_ids: Sequence[int], max_tokens: int) -> Any:
        """See edgellm.speculative.Proposer."""
        from edgellm.speculative.proposer import Guess

        ids = self._text[len(token_ids) : len(token_ids) + max_tokens]
        guess = [i if self._random.random() < self._chance else (i + 1) % self._vocab_size for i in ids]
        return Guess(guess, [1] * len(guess))

    def close(self) -> None:
        """Nothing is held."""


def write(llm: Any, count: int, make: Callable[[Sequence[int]], Any] | None, texts: list[list[int]]) -> dict[str, Any]:
    """Let the model write. make: a speculator for one answer, whose whole text is given if it is known."""
    from edgellm import SamplingParams
    from edgellm.sequence import Sequence as Request
    from edgellm.stream import Stream

    ids: list[int] = []
    sums: list[int] = []
    found = {"guessed": 0, "right": 0}
    for number in range(-(-count // EACH)):
        prompt = llm.tokenize(PROMPT.format(year=1700 + number))
        params = SamplingParams(max_tokens=min(EACH, count - number * EACH), temperature=0, ignore_eos=True)
        if make is not None:
            llm.loaded.engine.use(make(texts[number] if texts else []))
        recorder = Recorder(params)
        done = Stream(llm, Request(prompt, params, chooser=recorder, created_s=time.perf_counter())).finish()
        ids += done.token_ids
        sums += recorder.sums
        found["guessed"] += done.timings.draft_tokens
        found["right"] += done.timings.accepted_tokens
        if len(texts) <= number:
            texts.append(prompt + done.token_ids)
    return {"ids": ids, "sums": sums, **found}


def check(model: str, args: argparse.Namespace) -> list[dict[str, Any]]:
    """All ways to guess on one model."""
    from edgellm import LLM
    from edgellm.guessing import longest_draft
    from edgellm.speculative import NgramProposer, Speculator

    options: dict[str, Any] = {"threads": args.threads, "max_context": EACH + 64}
    texts: list[list[int]] = []
    with LLM.load(model, spec="off", **options) as llm:
        vocab_size = llm.vocab_size
        plain, longest = write(llm, args.tokens, None, texts), longest_draft(vocab_size)
        ways: dict[str, Callable[[Sequence[int]], Any]] = {
            "n-grams where they pay": lambda text: Speculator(lambda s: [NgramProposer()], longest),
            "n-grams always": lambda text: Speculator(lambda s: [NgramProposer()], longest, always=True),
        }
        for name, chance in (("always right", 1.0), ("always wrong", 0.0), ("right by half", 0.5)):
            ways[name] = lambda text, chance=chance: Speculator(
                lambda s: [Oracle(text, chance, vocab_size)], longest, always=True
            )
        rows = [compare(model, name, plain, write(llm, args.tokens, make, texts)) for name, make in ways.items()]
    with LLM.load(model, spec="draft", draft_model=args.draft or model, **options) as llm:
        speculator = llm.loaded.engine.speculator
        assert speculator is not None
        speculator._always = True
        rows.append(compare(model, "draft model", plain, write(llm, args.tokens, None, texts)))
    return rows


def compare(model: str, name: str, plain: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    """One row of the table."""
    row = {"model": model, "guesses": name, "tokens": len(found["ids"])}
    row |= {key: found[key] for key in ("guessed", "right")}
    row |= {"same_ids": found["ids"] == plain["ids"], "same_logits": found["sums"] == plain["sums"]}
    print(f"  {row}", file=sys.stderr, flush=True)
    return row


def main(words: Sequence[str] | None = None) -> int:
    """Check, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("models", nargs="*", default=["smollm2", "gemma3-270m"], metavar="MODEL")
    add("-n", "--tokens", type=int, default=10_000, metavar="N", help="tokens to write (default: %(default)s)")
    add("-t", "--threads", type=int, metavar="N")
    add("--draft", metavar="MODEL", help="the draft model; the model itself if not given")
    args = parser.parse_args(words)
    require_at_least(parser, args, tokens=1)
    rows = [row for model in args.models for row in check(model, args)]
    cells = [[str(value) for value in row.values()] for row in rows]
    print(pages.make_columns(TITLES, cells))
    print(json.dumps(rows))
    return 0 if all(row["same_ids"] and row["same_logits"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
