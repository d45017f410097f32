"""`edgellm kernels`: what compiled kernels lie where, and building them ahead for an application to ship.

Next hop: `..kernels.cpu.ahead` builds, `..kernels.cpu.shipped` says where they are looked for.
"""

from __future__ import annotations

import json
import shutil
from argparse import Namespace
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ..errors import OptionError
from . import loading
from .options import MODEL_HELP
from .parser import Parser
from .progress import Progress
from .terminal import human_bytes, printable

ACTIONS = ("show", "build", "clear")
USAGE = "[show | build | clear] [options]"
DESCRIPTION = (
    "Kernels are compiled when they are first needed and kept. Show says where they lie; clear deletes those in the\n"
    "user's cache. Build compiles them ahead, for this machine or others, into a folder that an application ships: it\n"
    "then starts without compiling and without Numba. They are found in the folder that EDGELLM_KERNELS names, in\n"
    "edgellm-kernels beside a frozen application, and in kernels/compiled of the installed package; the best level there\n"
    "that the CPU has is used. EDGELLM_ISA forces a level: avx512vnni, avxvnni, avx2, i8mm, dotprod, generic.\n"
    "Targets: native, or an architecture (x86-64, arm64) and a level: x86-64-avx2, arm64-dotprod, x86-64-generic ..."
)
EXAMPLES = """\
  edgellm kernels
  edgellm kernels build --output app/kernels --model smollm2
  edgellm kernels build --output app/kernels --os windows --target x86-64-avx2 --target x86-64-generic
  EDGELLM_KERNELS=app/kernels edgellm run smollm2 "Hello"
"""


def add_arguments(parser: Parser) -> None:
    """Add the command's options."""
    parser.add_argument(
        "action", nargs="?", default="show", metavar="ACTION", help="show (the default), build or clear"
    )
    parser.add_argument(
        "--json", action="store_true", help="show: print a JSON array of {folder, level, files, nbytes, used}"
    )
    add = parser.add_argument_group("build").add_argument
    add("--output", metavar="DIR", help="folder of the bundle; what is there and fits is kept")
    target_help = "machines to build for; may be repeated (default: native)"
    add("--target", action="append", default=[], metavar="NAME", help=target_help)
    add("--os", metavar="NAME", help="linux, macos or windows (default: this one)")
    add("--model", metavar="MODEL", help=f"only what this model needs: {MODEL_HELP}")
    add("--formats", metavar="LIST", help="formats of weights, as Q4_0,Q6_K, or all (default: all)")


def execute(args: Namespace) -> int:
    """Run the command and return its exit code."""
    if args.action not in ACTIONS:
        raise OptionError(f"{args.action!r} is not something to do with kernels; use one of {', '.join(ACTIONS)}")
    given = {"--output": args.output, "--target": args.target, "--os": args.os}
    given |= {"--model": args.model, "--formats": args.formats}
    stray = [name for name, value in given.items() if value]
    if args.action != "build" and stray:
        raise OptionError(f"{stray[0]} is an option of `edgellm kernels build`")
    return {"show": _show, "build": _build, "clear": _clear}[args.action](args)


# ---- show ----
def _measure(folder: Path, level: str, is_used: bool) -> dict[str, Any]:
    sizes = [path.stat().st_size for path in folder.glob("*.o")]
    return {"folder": str(folder), "level": level, "files": len(sizes), "nbytes": sum(sizes), "used": is_used}


def _cached() -> Iterable[Path]:
    from ..paths import home

    kept = home() / "kernels"
    return sorted(p for p in kept.iterdir() if p.is_dir()) if kept.is_dir() else []


def _show(args: Namespace) -> int:
    from ..kernels.cpu import isa, objects, shipped

    choice = objects.choose_level()
    # The name of a folder begins with its target or level, which may contain dashes; the rest is a hash.
    in_bundles = [p for bundle in shipped.bundles() for p in sorted(bundle.iterdir()) if p.is_dir()]
    used = {*shipped.folders(choice.level)}
    rows = [_measure(p, p.name.rpartition("-")[0], p in used) for p in in_bundles]
    known = {objects.cache_key(level): level is choice.level for level in isa.LEVELS}
    rows += [_measure(p, p.name.rpartition("-")[0], known.get(p.name, False)) for p in _cached()]
    if args.json:
        print(json.dumps(rows))
        return 0
    print(f"level {choice.level.name}: {choice.reason}")
    old = [row for row in rows if Path(row["folder"]) not in in_bundles and Path(row["folder"]).name not in known]
    shown = [row for row in rows if row not in old]
    width = max((len(row["level"]) for row in shown), default=0)
    for row in shown:
        state = "used" if row["used"] else "not used"
        size = f"{row['files']:4} kernels {human_bytes(row['nbytes']):>8}"
        print(printable(f"{row['level']:{width}} {size}  {state}: {row['folder']}"))
    if old:
        count, nbytes = sum(row["files"] for row in old), sum(row["nbytes"] for row in old)
        kernels = "1 kernel" if count == 1 else f"{count} kernels"
        print(f"{kernels} of other versions or machines, {human_bytes(nbytes)} (edgellm kernels clear deletes all)")
    if not rows:
        print("no kernels are compiled yet")
    return 0


def _clear(args: Namespace) -> int:
    rows = [_measure(folder, "", False) for folder in _cached()]
    for row in rows:
        shutil.rmtree(row["folder"])
    print(f"deleted {sum(r['files'] for r in rows)} kernels, {human_bytes(sum(r['nbytes'] for r in rows))}")
    return 0


# ---- build ----
def _build(args: Namespace) -> int:
    if not args.output:
        raise OptionError("build needs --output DIR: the folder that the application will ship")
    if args.model and args.formats:
        raise OptionError("give --model or --formats, not both: a model says which formats it needs")
    from ..kernels.cpu import ahead, target

    system = args.os or target.system()
    targets = [target.named_target(name, system) for name in args.target or ["native"]]
    names = _model_kernels(args.model) if args.model else _format_kernels(args.formats or "all")
    with Progress() as progress:
        for made_for in targets:
            folder = ahead.build(names, made_for, Path(args.output), progress)
            row = _measure(folder, "", False)
            print(printable(f"{made_for.name}  {row['files']} kernels {human_bytes(row['nbytes'])}: {folder}"))
    return 0


def _format_kernels(text: str) -> list[str]:
    from ..kernels import formats
    from ..kernels.cpu import ahead

    wanted = list(formats.FORMATS) if text == "all" else [name.strip().upper() for name in text.split(",")]
    for name in wanted:
        if name not in formats.FORMATS:
            raise OptionError(f"--formats {name} is not known; use all, or some of {', '.join(formats.FORMATS)}")
    return ahead.common_kernels() + [kernel for name in wanted for kernel in ahead.format_kernels(name)]


def _model_kernels(model: str) -> list[str]:
    from .. import models
    from ..gguf import open_gguf
    from ..kernels.cpu import ahead, weights

    with open_gguf(loading.find_file(model)) as file:
        program = models.get(str(file.require("general.architecture"))).build(file.metadata, file.tensors)
        return list(dict.fromkeys([*ahead.common_kernels(), *weights.kernel_names(program, file)]))
