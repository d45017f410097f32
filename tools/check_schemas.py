"""Check structured output against the JSON Schema project's own tests, and with random schemas on a real model.

1. JSON-Schema-Test-Suite (draft 2020-12), inside the source package of `jsonschema`, which pip fetches, or a folder given
   by --suite: every valid instance must be accepted token by token, every invalid one refused, or the schema be refused by
   name. The order of an object's members is the schema's, so a valid instance may need another order than the suite's.
2. The model answers with seeded random schemas at temperature 1: every finished answer must validate with `jsonschema`, and
   finish within a number of tokens that follows from the schema.

Prints a table and, as the last line, one JSON object; exit code 1 where an answer or an instance was wrong.

    python tools/check_schemas.py
"""

from __future__ import annotations

import argparse
import itertools
import json
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import jsonschema
import source_package
from arguments import require_at_least
from random_schemas import bound_tokens, make_schema

from edgellm import LLM, EdgeLLMError, SamplingParams, Tokenizer
from edgellm.structured import make_constraint

PACKAGE = "jsonschema==4.26.0"
INSIDE = "json/tests/draft2020-12/"
FORMATS = "optional/format/"
ANNOTATION = "is only an annotation by default"  # here it is kept to, as the suite's optional tests of formats want
LOOSE = ("leap sec", "29 days in February (normal)", "2021 is not a leap year")  # a regular expression cannot tell
MAX_ORDERS = 24
CHECKER = jsonschema.Draft202012Validator.FORMAT_CHECKER  # times need the package rfc3339-validator


@dataclass
class SuiteResult:
    """One file of the suite.

    accepted, rejected: valid and invalid instances; reordered: of the accepted, in another order or spelling of numbers.
    stricter: valid instances of a format that are refused all the same, and such as break one where the draft allows that;
    loose: invalid dates and times that are accepted, which only a calendar can tell. faults: what was wrong, in words.
    reasons: why schemas were refused.
    """

    name: str
    schemas: int = 0
    refused: int = 0
    accepted: int = 0
    reordered: int = 0
    rejected: int = 0
    stricter: int = 0
    loose: int = 0
    faults: list[str] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    slowest_s: float = 0.0


def fetch_suite(folder: Path) -> Path:
    """Download the source package into `folder`, extract the tests, return where they lie."""

    def place(name: str) -> str | None:
        _, inside, rest = name.partition(INSIDE)
        return rest if inside and "/" not in rest.removeprefix(FORMATS) else None

    return source_package.fetch_files(PACKAGE, folder, folder / "tests", place)


def check_file(path: Path, tokenizer: Tokenizer) -> SuiteResult:
    """Check every schema of one file of the suite."""
    result = SuiteResult(path.stem if path.parent.name != "format" else f"format {path.stem}")
    for case in json.loads(path.read_text("utf-8")):
        result.schemas += 1
        start = time.perf_counter()
        try:
            params = SamplingParams(schema=case["schema"])
            make_constraint(params, tokenizer, tokenizer.eog_ids)
        except EdgeLLMError as error:
            result.refused += 1
            result.reasons.append(str(error)[:120])
            continue
        for test in case["tests"]:
            if test["description"].endswith(ANNOTATION):
                result.stricter += 1
                continue
            check_instance(result, case, test, params, tokenizer)
        result.slowest_s = max(result.slowest_s, time.perf_counter() - start)
    return result


def check_instance(
    result: SuiteResult, case: dict[str, Any], test: dict[str, Any], params: SamplingParams, tokenizer: Tokenizer
) -> None:
    """Feed one instance to the schema's constraint, in other orders of its members too if it should be accepted."""
    ways = itertools.chain(*(itertools.islice(orders_of(v), MAX_ORDERS) for v in (test["data"], spelled(test["data"]))))
    orders = enumerate(ways)
    found = next((n for n, value in orders if accepts(params, tokenizer, json.dumps(value, ensure_ascii=False))), None)
    if (found is not None) == test["valid"]:
        result.accepted += found is not None
        result.reordered += bool(found)
        result.rejected += found is None
    elif result.name.startswith("format ") and test["valid"]:
        result.stricter += 1
    elif any(mark in test["description"] for mark in LOOSE):
        result.loose += 1
    else:
        verdict = "an invalid instance is accepted" if found is not None else "a valid instance is refused"
        result.faults.append(
            f"{case['description']}: {test['description']}: {verdict}: {json.dumps(test['data'])[:80]}"
        )


def accepts(params: SamplingParams, tokenizer: Tokenizer, text: str) -> bool:
    """Say whether a text can be an answer: each of its tokens is allowed in turn, and then the end."""
    import numpy as np

    constraint = make_constraint(params, tokenizer, tokenizer.eog_ids)
    for token_id in [*tokenizer.encode_inside(text), min(tokenizer.eog_ids)]:
        logits = np.zeros(tokenizer.vocab_size, np.float32)
        constraint.mask(logits)
        if logits[token_id] != 0.0:
            return False
        constraint.accept(token_id)
    return True


def spelled(value: Any) -> Any:
    """Return the same value with whole numbers written as such: 1.0 and 1 are one number, and answers hold the latter."""
    if isinstance(value, dict):
        return {name: spelled(member) for name, member in value.items()}
    if isinstance(value, list):
        return [spelled(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def orders_of(value: Any) -> Iterator[Any]:
    """Yield a value with its members in every order, as given first."""
    if isinstance(value, dict):
        for names in itertools.permutations(value):
            for members in itertools.product(*(list(itertools.islice(orders_of(value[n]), 6)) for n in names)):
                yield dict(zip(names, members, strict=True))
    elif isinstance(value, list):
        for items in itertools.product(*(list(itertools.islice(orders_of(item), 6)) for item in value)):
            yield list(items)
    else:
        yield value


def check_random(llm: LLM, count: int, seed: int) -> dict[str, Any]:
    """Let the model answer with `count` random schemas; return figures and the faults in words."""
    figures: Counter[str] = Counter()
    faults: list[str] = []
    start = time.perf_counter()
    for i in range(seed, seed + count):
        schema = make_schema(i)
        prompt = f"Write an example of JSON that fits this JSON Schema: {json.dumps(schema)}"
        limit = bound_tokens(schema)
        try:
            stream = llm.chat_stream(
                [{"role": "user", "content": prompt}], schema=schema, temperature=1.0, seed=i, max_tokens=limit
            )
            text = "".join(stream)
        except EdgeLLMError as error:
            figures["refused"] += 1
            faults.append(f"seed {i}: {error}")
            continue
        done = stream.completion
        assert done is not None
        figures["tokens"] += len(done.token_ids)
        if done.finish_reason != "stop":
            figures["cut"] += 1
            faults.append(f"seed {i}: not finished after {limit} tokens: ...{text[-80:]!r}")
            continue
        figures["finished"] += 1
        try:
            jsonschema.validate(json.loads(text), schema, format_checker=CHECKER)
        except (ValueError, jsonschema.ValidationError) as error:
            figures["invalid"] += 1
            faults.append(f"seed {i}: {str(error).splitlines()[0]}: {text[:120]}")
    names = ("finished", "cut", "refused", "invalid", "tokens")
    return {name: figures[name] for name in names} | {
        "seconds": round(time.perf_counter() - start, 1),
        "faults": faults,
    }


def main(arguments: list[str] | None = None) -> int:
    """Run both checks and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2", help="a GGUF file or an alias (default: %(default)s)")
    parser.add_argument(
        "--suite", type=Path, help="the folder of the suite's tests of one draft, instead of fetching it"
    )
    parser.add_argument("--random", type=int, default=200, metavar="N", help="random schemas (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="the first schema's (default: %(default)s)")
    parser.add_argument("--threads", type=int, metavar="N")
    args = parser.parse_args(arguments)
    require_at_least(parser, args, random=0, seed=0)
    with LLM.load(args.model, threads=args.threads) as llm, tempfile.TemporaryDirectory() as folder:
        suite = args.suite or fetch_suite(Path(folder))
        files = [*sorted(suite.glob("*.json")), *sorted(suite.glob(f"{FORMATS}*.json"))]
        results = [check_file(path, llm.tokenizer) for path in files]
        drawn = check_random(llm, args.random, args.seed)
    report(results, drawn)
    is_sound = bool(results) and not any(r.faults for r in results) and not drawn["invalid"] and not drawn["cut"]
    return 0 if is_sound else 1


def report(results: list[SuiteResult], drawn: dict[str, Any]) -> None:
    """Print the table, the faults and the JSON line."""
    columns = ("schemas", "refused", "accepted", "reordered", "rejected", "stricter", "loose")
    row = "{:32}" + " {:>9}" * (len(columns) + 1)
    print(row.format("file", *columns, "faults"))
    for r in results:
        print(row.format(r.name, *(getattr(r, name) for name in columns), len(r.faults)))
    for r in results:
        print(*(f"{r.name}: {fault}" for fault in r.faults), sep="\n", end="\n" if r.faults else "")
    print(*drawn["faults"], sep="\n")
    totals: dict[str, Any] = {name: sum(getattr(r, name) for r in results) for name in columns}
    totals |= {"faults": sum(len(r.faults) for r in results), "slowest_s": round(max(r.slowest_s for r in results), 3)}
    print(json.dumps({"suite": totals, "random": drawn, "files": [asdict(r) for r in results]}))


if __name__ == "__main__":
    raise SystemExit(main())
