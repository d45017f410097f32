"""`edgellm doctor`: what this machine is, what edgellm makes of it, and what a model would do here, on one screen.

Next hop: `..doctor` for the facts, `..kernels.cpu.bandwidth` for what is measured.
"""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from . import loading
from .options import MODEL_HELP, add_cache_types, cache_formats, check_range
from .parser import Parser
from .progress import Progress
from .terminal import bold, human_bytes, one_line, printable

if TYPE_CHECKING:
    from ..doctor import Home, Machine, ModelReport
    from ..kernels.cpu.bandwidth import Reading

USAGE = "[MODEL] [options]"
DESCRIPTION = (
    "Say what edgellm finds on this machine: CPU, instruction level, threads, memory, folders, versions, and how\n"
    "fast memory can be read. With MODEL also what that model needs here, and the speed to expect."
)
EXAMPLES = """\
  edgellm doctor
  edgellm doctor gemma3-270m -d 4096       what to expect with 4096 tokens in the cache
  edgellm doctor --quick                   measure nothing, compile nothing
  edgellm doctor --json | jq .machine.level"""
REPEATS = 7


def add_arguments(parser: Parser) -> None:
    """Add the command's options."""
    parser.add_argument("model", nargs="?", metavar="MODEL", help=MODEL_HELP)
    parser.add_argument(
        "-t", "--threads", type=int, metavar="N", help="measure up to N threads (default: as many as run)"
    )
    depth_help = "tokens in the cache of the expected speed (default: %(default)s)"
    parser.add_argument("-d", "--depth", type=int, default=0, metavar="N", help=depth_help)
    context_help = "reckon the memory for N tokens (default: what edgellm would choose)"
    parser.add_argument("--max-context", type=int, metavar="N", help=context_help)
    add_cache_types(parser.add_argument)
    parser.add_argument("--quick", action="store_true", help="measure nothing, which also compiles nothing")
    parser.add_argument("--json", action="store_true", help="print one JSON object on one line")


def execute(args: Namespace) -> int:
    """Run the command and return its exit code."""
    for name, low in (("threads", 1), ("depth", 0), ("max_context", 1)):
        check_range(f"--{name.replace('_', '-')}", getattr(args, name), low)
    formats = cache_formats(args)
    path = loading.find_file(args.model) if args.model is not None else None
    from .. import doctor
    from ..gguf import open_gguf

    machine = doctor.examine_machine()
    readings = [] if args.quick else _measure(args.threads or machine.threads)
    report = None
    if path is not None:
        with open_gguf(path) as file:
            report = doctor.examine_model(file, args.depth, args.max_context, formats)
    home, versions = doctor.examine_home(), doctor.get_versions()
    if args.json:
        print(json.dumps(as_dict(machine, readings, home, versions, report)))
        return 0
    sections = [("machine", machine_rows(machine)), ("reading memory", reading_rows(readings))]
    sections += [("folder", home_rows(home)), ("versions", [(" ".join(f"{n} {v}" for n, v in versions.items()),)])]
    if report is not None:
        sections.append(("model", model_rows(report, machine, _bandwidth(readings, machine.threads))))
    print("\n".join(_section(title, rows) for title, rows in sections if rows))
    return 0


def _measure(most: int) -> list[Reading]:
    from ..doctor import thread_counts
    from ..kernels.cpu.bandwidth import Reader
    from ..paths import home

    counts = thread_counts(most)
    with Progress() as progress:
        reader = Reader(home() / "kernels", progress=progress)
        readings = []
        for done, count in enumerate(counts):
            progress("bench", done, len(counts))
            readings.append(reader.read(count, REPEATS))
        progress("bench", len(counts), len(counts))
    return readings


def _bandwidth(readings: list[Reading], threads: int) -> float | None:
    """What the threads that run would read; of another number where -t left that one out."""
    fit = [r for r in readings if r.num_threads <= threads] or readings
    return fit[-1].median if fit else None


def machine_rows(machine: Machine) -> list[tuple[str, ...]]:
    """Return the CPU, the level, the threads and the memory."""
    fast = f", {machine.fast_cores} of them fast" if machine.fast_cores < machine.physical_cores else ""
    quota = "no quota" if machine.cpu_quota is None else f"a quota of {machine.cpu_quota:g} CPUs"
    free = human_bytes(machine.available_bytes)
    memory = f"{free} free of {human_bytes(machine.memory_bytes)}"
    if machine.is_limited:
        memory = f"{free} free, which is the container's limit; the machine has {human_bytes(machine.memory_bytes)}"
    return [
        ("CPU", f"{machine.cpu} ({machine.system})"),
        ("cores", f"{machine.physical_cores} physical{fast}, {machine.logical_cores} logical"),
        ("allowed", f"{machine.allowed_cpus} of {machine.logical_cores} logical cores, {quota}"),
        ("level", f"{machine.level}: {machine.level_reason}"),
        ("threads", f"{machine.threads}: {machine.threads_reason}"),
        ("memory", memory),
    ]


def reading_rows(readings: list[Reading]) -> list[tuple[str, ...]]:
    """Return a line per number of threads."""
    return [
        (
            f"{r.num_threads} thread{'s' * (r.num_threads > 1)}",
            f"{r.median / 1e9:5.1f} GB/s",
            f"[{r.low / 1e9:.1f} .. {r.high / 1e9:.1f}]",
            f"{r.streams} stream{'s' * (r.streams > 1)} each",
        )
        for r in readings
    ]


def home_rows(home: Home) -> list[tuple[str, ...]]:
    """Return where things are kept and what is there."""
    state = "writable" if home.problem is None else f"cannot be written ({home.problem}): EDGELLM_HOME names another"
    kernels = f"{home.num_kernels} compiled for this CPU and version"
    if not home.num_kernels:
        kernels = "none compiled yet: the first start takes some seconds longer" + (
            ", every start" * bool(home.problem)
        )
    rows: list[tuple[str, ...]] = [("home", f"{home.path}, {state}"), ("kernels", kernels)]
    return rows + [("packed", f"{home.num_packed}, {human_bytes(home.packed_bytes)}")] * bool(home.num_packed)


def model_rows(report: ModelReport, machine: Machine, bandwidth: float | None) -> list[tuple[str, ...]]:
    """Return what the model reads, needs and is expected to do."""
    if report.problem is not None:
        return [("file", report.path), ("problem", f"edgellm cannot run it: {one_line(report.problem)}")]
    assert report.token_bytes is not None and report.weight_bytes is not None and report.needed_bytes is not None
    assert report.cache_token_bytes is not None
    cache = report.token_bytes - report.weight_bytes
    reads = f"{human_bytes(report.weight_bytes)} of weights and {human_bytes(cache)} of cache at depth {report.depth}"
    tps = report.expected_tps(bandwidth) if bandwidth else None
    missing = f"{report.num_missing} of {report.num_kernels} are to be compiled first"
    return [
        ("file", report.path),
        ("a token", f"reads {reads}"),
        (
            "cache",
            f"{human_bytes(report.cache_token_bytes)} a token (keys {report.cache_type_k}, values {report.cache_type_v})",
        ),
        ("decode", "unknown: nothing was measured" if tps is None else f"about {tps:.0f} tokens/s with packed weights"),
        (
            "memory",
            f"{human_bytes(report.needed_bytes)} with a context of {report.max_context}, {_fits(report, machine)}",
        ),
        ("packed", _packed(report)),
        ("kernels", missing if report.num_missing else f"all {report.num_kernels} are compiled"),
    ]


def _fits(report: ModelReport, machine: Machine) -> str:
    free = f"{human_bytes(machine.available_bytes)} free"
    if report.layout == "raw":
        return f"{free}: weights stay in the file, which is slower"
    return f"{free}: " + ("weights are mapped from the packed file" if report.layout == "mapped" else "fits")


def _packed(report: ModelReport) -> str:
    if report.packed_file is None:
        return "no packed file (`edgellm pack` writes one, for a quicker start)"
    if report.packed_problem is not None:
        return f"{report.packed_file} is not used: {report.packed_problem}"
    return report.packed_file


def _section(title: str, rows: list[tuple[str, ...]]) -> str:
    columns = max(map(len, rows))
    widths = [max((len(row[i]) for row in rows if i < len(row) - 1), default=0) for i in range(columns)]
    lines = ("  ".join(f"{cell:{w}}" for cell, w in zip(row, widths, strict=False)).rstrip() for row in rows)
    return f"{bold(title, sys.stdout)}\n" + "\n".join(f"  {printable(line)}" for line in lines)


def as_dict(
    machine: Machine,
    readings: list[Reading],
    home: Home,
    versions: dict[str, str | None],
    report: ModelReport | None,
) -> dict[str, Any]:
    """Return what --json prints: bytes, bytes per second, None for what is unknown or was not asked for."""
    bandwidth = _bandwidth(readings, machine.threads)
    model = None
    if report is not None:
        model = {**asdict(report), "expected_tps": report.expected_tps(bandwidth) if bandwidth else None}
    return {
        "machine": asdict(machine),
        "read_bandwidth": [asdict(r) for r in readings],
        "home": asdict(home),
        "versions": versions,
        "model": model,
    }
