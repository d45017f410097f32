"""`edgellm bench`: prefill and decode speed of one model, and how much of the memory's speed decode uses.

It knows ids and timings only. Next hop: `measure.py` for what is run, `loading.py` for the model.
"""

from __future__ import annotations

import json
from argparse import Namespace
from dataclasses import replace

from . import loading
from .measure import Measurement, Plan, measure
from .options import add_engine, add_model, check_range, display_name, engine_config
from .parser import Parser
from .progress import Progress
from .terminal import human_bytes, printable

USAGE = "[MODEL] [options]"
DESCRIPTION = (
    "Measure prefill (reading a prompt) and decode (writing an answer) in tokens per second: the median of\n"
    "-r repeats, with the lowest and highest. Decode is bound by memory, so the read bandwidth of the machine\n"
    "is measured beside it, with as many threads, and the share that decode uses is told. Ids are random,\n"
    "nothing is remembered between repeats. The last line is one JSON object."
)
EXAMPLES = """\
  edgellm bench                            the default model, 512 tokens in, 128 out
  edgellm bench gemma3-270m -t 1 -r 5
  edgellm bench ./model.gguf -d 4096       with 4096 tokens already in the cache
  edgellm bench --json | jq .decode_tps"""


def add_arguments(parser: Parser) -> None:
    """Add the command's options."""
    add_model(parser)
    group = parser.add_argument_group("what is measured")
    add = group.add_argument
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
    add("-r", "--repeats", type=int, default=3, metavar="N", help="times each is measured (default: %(default)s)")
    add("--json", action="store_true", help="print the JSON line only")
    add_engine(parser, with_context=False)


def execute(args: Namespace) -> int:
    """Run the command and return its exit code."""
    for name, low in (("prompt_tokens", 1), ("decode_tokens", 1), ("depth", 0), ("repeats", 1)):
        check_range(f"--{name.replace('_', '-')}", getattr(args, name), low)
    from ..kernels.cpu.threads import default_threads

    config = engine_config(args)
    if config.spec == "auto":  # text that repeats itself would seem faster than memory
        config = replace(config, spec="off")
    threads = config.threads or default_threads()
    plan = Plan(display_name(args.model), threads, args.prompt_tokens, args.decode_tokens, args.depth, args.repeats)
    longest = plan.longest if config.window is None else None
    with loading.load_llm(args.model, replace(config, threads=threads, max_context=longest)) as llm:
        with Progress() as progress:
            result = measure(llm, plan, progress)
        if not args.json:
            print(printable(report_text(result)))
        print(json.dumps(result.as_dict()))
    return 0


def report_text(result: Measurement) -> str:
    """Return the table for people."""
    plan = result.plan
    used = result.bytes_per_token * result.decode_tps.median / 1e9
    bandwidth = result.read_bandwidth.median / 1e9
    at = f"at depth {plan.depth}"
    rows = [
        ("model", f"{plan.model}, {human_bytes(result.weight_bytes)} of weights read per token"),
        ("threads", str(plan.threads)),
        ("prefill", f"{result.prefill_tps} tokens/s  ({plan.prompt_tokens} tokens {at})"),
        ("decode", f"{result.decode_tps} tokens/s  ({plan.decode_tokens} tokens {at})"),
        ("memory", f"{bandwidth:.1f} GB/s can be read, {used:.1f} GB/s are used: {result.bandwidth_share:.0%}"),
    ]
    return "\n".join(f"{name:8} {value}" for name, value in rows)
