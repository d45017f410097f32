"""Ask every route of `edgellm serve` for everything: what its OpenAPI document allows and forbids, and worse.

    python tools/fuzz_server.py MODEL [-n 200] [--evil 1.0] [--seed 0]

MODEL should be a tiny one: thousands of requests are answered. Three parts: bodies that fit the document and bodies that do not
(schemathesis, N of each and route; left out with a word where it is missing), and one valid body with each of its values
replaced by evil ones (--evil: which share). Wanted: never a status of 500 or above, answers and errors in the document's shape,
and an error that names the field. The last line is JSON. Exit code 1: something was found. Next hop: `evil_bodies.py`.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import random
import re
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from arguments import require_at_least
from evil_bodies import VALID, Evil, evil_bodies
from server_process import serving

OPTIONS = ("--max-context", "1024", "--max-num-seqs", "4", "-t", "2")
TIMEOUT_S = 60.0
SLOW_S = 10.0
"""A machine in use answers any of these well within it; what does not is a loop that a stranger can start."""
LOGGED = re.compile(r'(?m)^  File "([^"]+", line \d+, in \w+)\n.*\n(?:[ ~^]+\n)?(\w+: .*)$')
ANY_NUMBER = re.compile(r"\d+")
ANY_NAME = re.compile(r"[a-z_]+")


class Report:
    """Statuses by route and part, and what must not be, each once."""

    def __init__(self) -> None:
        self.counts: dict[str, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
        self.faults: dict[str, str] = {}

    def note(self, route: str, part: str, status: int) -> None:
        """An answer."""
        self.counts[route][part][f"{status // 100}xx" if status else "none"] += 1

    def fault(self, route: str, what: str, example: object) -> None:
        """What must not be, with the first example of it."""
        self.faults.setdefault(ANY_NUMBER.sub("#", f"{route}: {what}"[:200]), str(example)[:400])

    def show(self) -> None:
        """Print a table, and the faults."""
        for route, parts in sorted(self.counts.items()):
            told = [
                f"{part}: " + ", ".join(f"{k} x {n}" for k, n in sorted(found.items())) for part, found in parts.items()
            ]
            print(f"{route:30}" + "   ".join(told))
        for what, example in list(self.faults.items())[:30]:
            print(f"FAULT {what}\n      {example}")
        print(f"{len(self.faults)} faults")


def by_document(address: str, document: dict[str, Any], args: argparse.Namespace, report: Report) -> bool:
    """What fits the document, and what does not. -> False if schemathesis is missing."""
    try:
        import schemathesis
    except ImportError:
        return False
    schema = schemathesis.openapi.from_dict(document)
    for found in schema.get_all_operations():
        operation = found.ok()
        for mode in schemathesis.GenerationMode:
            _try_cases(operation, mode, address, args, report)
    return True


def _try_cases(operation: Any, mode: Any, address: str, args: argparse.Namespace, report: Report) -> None:
    from hypothesis import HealthCheck, Phase, given, seed, settings
    from hypothesis.errors import Unsatisfiable
    from schemathesis.checks import not_a_server_error
    from schemathesis.core.failures import Failure, FailureGroup
    from schemathesis.openapi import checks as _  # noqa: F401  (registers the others)
    from schemathesis.specs.openapi.checks import response_schema_conformance, status_code_conformance

    checks = [not_a_server_error, response_schema_conformance, status_code_conformance]
    route = operation.label

    @seed(args.seed)
    @settings(
        max_examples=args.examples,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def test(case: Any) -> None:
        answer = case.call(base_url=address, timeout=TIMEOUT_S)
        report.note(route, str(mode.value), answer.status_code)
        is_stream = not answer.headers.get("content-type", [""])[0].startswith("application/json")
        try:
            case.validate_response(answer, checks=checks[:1] if is_stream else checks)
        except (Failure, FailureGroup) as error:
            for one in getattr(error, "exceptions", [error]):
                what = f"{one.title}: {one.message.splitlines()[0] if one.message else ''}"
                report.fault(route, what, case.as_curl_command())

    with contextlib.suppress(Unsatisfiable):  # a route that takes nothing cannot be asked wrongly
        test()


def by_evil(address: str, document: dict[str, Any], args: argparse.Namespace, report: Report) -> None:
    """Valid bodies with evil in them."""
    host, rng = address.removeprefix("http://"), random.Random(args.seed)
    connection = http.client.HTTPConnection(host, timeout=TIMEOUT_S)
    for path in VALID:
        if path not in document["paths"]:
            continue
        body = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
        for evil in evil_bodies(path, tuple(body["properties"])):
            if rng.random() >= args.evil:
                continue
            start = time.monotonic()
            try:
                connection.request("POST", path, evil.body, {"Content-Type": "application/json"})
                answer = connection.getresponse()
                status, data = answer.status, answer.read()
            except (OSError, http.client.HTTPException) as error:
                status, data = 0, repr(error).encode()
            if status == 0 or status >= 500:  # uvicorn hangs up after those
                connection.close()
            if (seconds := time.monotonic() - start) > SLOW_S:
                report.fault(
                    f"POST {path}", f"{evil.field}: it took more than {SLOW_S:g} s", (seconds, evil.body[:300])
                )
            report.note(f"POST {path}", "evil", status)
            if what := find_fault(evil, status, data):
                report.fault(f"POST {path}", what, evil.body[:300])
    connection.close()


def find_fault(evil: Evil, status: int, data: bytes) -> str | None:
    """What is wrong with an answer to an evil body, None if nothing."""
    if status == 0 or status >= 500:
        return f"{evil.field}: status {status}: {data[:200]!r}"
    if status == 200:
        return f"{evil.field}: no JSON at all was taken" if evil.field is None else None
    try:
        error = json.loads(data)["error"]
        is_text = isinstance(error, str) and evil.path.startswith("/api/")  # as Ollama's clients read them
        message, param, code = (error, None, None) if is_text else (error["message"], error["param"], error["code"])
    except (ValueError, KeyError, TypeError):
        return f"{evil.field}: {status} without an error object: {data[:200]!r}"
    if not message or "\n" in message or len(message) > 1000:
        return f"{evil.field}: an error that is no line: {message[:300]!r}"
    is_of_all = message.startswith("the body is")
    is_too_long = code == "context_length_exceeded" or "context" in message
    if is_text or evil.field is None or is_of_all or status == 404 or is_too_long:
        return None
    if param is not None and param.split(".")[0] != evil.field and evil.field != "options":
        return f"{evil.field}: an error that names {param}: {message[:300]!r}"
    if param is None and not set(ANY_NAME.findall(message)) & {evil.field, evil.field.rstrip("s")}:
        return f"{evil.field}: an error that does not name it: {message[:300]!r}"
    return None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tool and return its exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", metavar="MODEL")
    parser.add_argument("-n", "--examples", type=int, default=200, metavar="N", help="of each kind and route")
    parser.add_argument("--evil", type=float, default=1.0, metavar="SHARE", help="of the evil bodies (default: all)")
    parser.add_argument("--seed", type=int, default=0, metavar="N")
    args = parser.parse_args(arguments)
    require_at_least(parser, args, examples=1)
    report, start = Report(), time.monotonic()
    with serving(args.model, *OPTIONS) as server:
        server.wait_until_ready()
        document = json.loads(_get(server.address, "/openapi.json"))
        has_schemathesis = by_document(server.address, document, args, report)
        by_evil(server.address, document, args, report)
        left = {k: v for k, v in server.settle().items() if v and k in ("requests_open", "cache_blocks_in_use")}
        if left:
            report.fault("afterwards", f"{left} when nobody asks", "")
        for where, what in set(LOGGED.findall(server.said)):
            report.fault("log", what[:200], where)
    report.show()
    if not has_schemathesis:
        print("left out what the document allows and forbids: pip install 'edgellm[fuzz]'")
    counts = {route: {part: dict(found) for part, found in parts.items()} for route, parts in report.counts.items()}
    seconds = time.monotonic() - start
    print(json.dumps({"seconds": seconds, "schemathesis": has_schemathesis, "counts": counts, "faults": report.faults}))
    return 1 if report.faults else 0


def _get(address: str, path: str) -> bytes:
    connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=TIMEOUT_S)
    connection.request("GET", path)
    data = connection.getresponse().read()
    connection.close()
    return data


if __name__ == "__main__":
    sys.exit(main())
