"""Measure start-up: from the start of the process to the first byte of an answer, and where the time goes.

    python tools/bench_start.py [MODEL ...] [-r 5] [--cold]

Each run is a fresh `python -m edgellm run MODEL "Hi" -n 1`, through the chat template if the file has one. Warm,
everything that edgellm keeps on disk is there; one run that is not counted sees to that. --cold gives each run an empty
EDGELLM_HOME (the model stays where it is): kernels are compiled and vocabularies built, as at the very first start. The
last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from statistics import median
from typing import Any

PROMPT = "Hi"
SHOWN_PACKAGES = 12
_IMPORT_LINE = re.compile(r"import time:\s*(\d+) \|\s*\d+ \|\s*([\w.]+)")


class RunFailed(Exception):
    """The command gave no answer."""


def make_environment(home: str | None) -> dict[str, str]:
    """Return the environment of a run: bytecode is kept, as for any user; `home` replaces EDGELLM_HOME."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    return environment if home is None else {**environment, "EDGELLM_HOME": home}


def time_to_first_byte(command: Sequence[str], home: str | None) -> float:
    """Return seconds from starting `command` to its first byte on standard output. Raises RunFailed."""
    start = time.perf_counter()
    process = subprocess.Popen(
        command, env=make_environment(home), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    first = process.stdout.read(1)
    seconds = time.perf_counter() - start
    _, errors = process.communicate()
    if not first or process.returncode != 0:
        raise RunFailed(errors.decode("utf-8", "replace").strip() or f"no output, exit code {process.returncode}")
    return seconds


def run_command(model: str, raw: bool, *more: str, python: Sequence[str] = (sys.executable,)) -> list[str]:
    """Return the command of one run."""
    options = ["-n", "1", "--temperature", "0", "--ignore-eos", *(["--raw"] if raw else []), *more]
    return [*python, "-m", "edgellm", "run", model, PROMPT, *options]


def get_timings(model: str, raw: bool) -> dict[str, float]:
    """Return what the command itself says of one warm run."""
    command = run_command(model, raw, "--json")
    done = subprocess.run(command, env=make_environment(None), capture_output=True, text=True, check=True)
    timings = json.loads(done.stdout)["timings"]
    return {name: float(timings[name]) for name in ("load_s", "ttft_s")}


def get_import_times(model: str, raw: bool) -> dict[str, float]:
    """Return {top package: seconds that its modules' own code took to import, "all": ...} of one warm run."""
    command = run_command(model, raw, python=(sys.executable, "-X", "importtime"))
    done = subprocess.run(command, env=make_environment(None), capture_output=True, text=True, check=True)
    return sum_imports(done.stderr)


def sum_imports(report: str) -> dict[str, float]:
    """Sum a report of -X importtime: the seconds of all modules, then of the slowest top packages."""
    seconds: dict[str, float] = {}
    for match in _IMPORT_LINE.finditer(report):
        package = match[2].split(".")[0]
        seconds[package] = seconds.get(package, 0.0) + int(match[1]) / 1e6
    slowest = sorted(seconds.items(), key=lambda item: -item[1])[:SHOWN_PACKAGES]
    return {name: round(value, 4) for name, value in [("all", sum(seconds.values())), *slowest]}


def has_template(model: str) -> bool:
    """Say whether the file has a chat template."""
    from edgellm.gguf import open_gguf

    with open_gguf(model) as file:
        return file.get("tokenizer.chat_template") is not None


def measure(model: str, args: argparse.Namespace) -> dict[str, Any]:
    """Return one model's figures."""
    raw = not has_template(model)
    command = run_command(model, raw)
    times = []
    if args.cold:
        for _ in range(args.repeats):
            with tempfile.TemporaryDirectory() as home:
                times.append(time_to_first_byte(command, home))
    else:
        time_to_first_byte(command, None)
        times = [time_to_first_byte(command, None) for _ in range(args.repeats)]
    figures: dict[str, Any] = {"first_token_s": median(times), "min_s": min(times), "max_s": max(times)}
    if not args.cold:
        figures |= get_timings(model, raw)
        figures["imports_s"] = get_import_times(model, raw)
    return figures


def report_text(name: str, figures: dict[str, Any], cold: bool) -> str:
    """Return one model's figures for people."""
    state = "nothing compiled yet" if cold else "caches warm"
    spread = f"[{figures['min_s']:.3f} .. {figures['max_s']:.3f}]"
    lines = [f"{name}: first token after {figures['first_token_s']:.3f} s {spread}, {state}"]
    if "load_s" in figures:
        lines.append(f"  loading the model {figures['load_s']:.3f} s, prompt and first token {figures['ttft_s']:.3f} s")
        shown = ", ".join(f"{package} {1000 * seconds:.0f}" for package, seconds in figures["imports_s"].items())
        lines.append(f"  imports, ms under -X importtime: {shown}")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Parse, measure, print. Return 2 where a run failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    models = ["smollm2", "gemma3-270m"]
    parser.add_argument(
        "models", nargs="*", default=models, help="a path, an alias or owner/repo (default: both aliases)"
    )
    parser.add_argument("-r", "--repeats", type=int, default=5, metavar="N", help="runs counted (default: %(default)s)")
    parser.add_argument("--cold", action="store_true", help="nothing compiled and no vocabulary built before")
    args = parser.parse_args(argv)
    if args.repeats < 1:
        parser.error(f"--repeats must be at least 1, not {args.repeats}")
    from edgellm import EdgeLLMError, hub

    results: dict[str, dict[str, Any]] = {}
    try:
        for name in args.models:
            results[name] = measure(str(hub.resolve(name)), args)
            print(report_text(name, results[name], args.cold), flush=True)
    except (RunFailed, EdgeLLMError) as error:
        print(f"bench_start: {error}", file=sys.stderr)
        return 2
    print(json.dumps({"cold": args.cold, "repeats": args.repeats, "results": results}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
