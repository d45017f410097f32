"""`edgellm pack`: write a model's packed weights to a file, which later starts map instead of packing.

Next hop: `..packing`.
"""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path

from ..errors import OptionError
from . import loading
from .options import MODEL_HELP, check_range
from .parser import Parser
from .progress import Progress
from .terminal import human_bytes, note, printable

USAGE = "MODEL [options]"
DESCRIPTION = (
    "Pack a model's weights into a file as large as they are, and print its path. Starts then map it: they pack nothing,\n"
    "and several processes share its memory. When the model or edgellm's own layout changes, the file is left unused,\n"
    "with a note, until it is packed again."
)
EXAMPLES = """\
  edgellm pack gemma3-270m
  edgellm pack ./model.gguf --output ./model.packed      then: edgellm chat ./model.gguf --weights ./model.packed
  edgellm pack --list
  edgellm pack ./model.gguf --remove"""


def add_arguments(parser: Parser) -> None:
    """Add the command's options."""
    parser.add_argument("model", nargs="?", metavar="MODEL", help=MODEL_HELP)
    output_help = "write here, a name that ends in .packed (default: where every start looks, under EDGELLM_HOME)"
    parser.add_argument("-o", "--output", metavar="FILE", help=output_help)
    parser.add_argument(
        "-t", "--threads", type=int, metavar="N", help="worker threads (default: one per physical core)"
    )
    parser.add_argument("--list", action="store_true", help="list the packed files instead")
    parser.add_argument("--remove", action="store_true", help="delete the model's packed file instead")
    parser.add_argument(
        "--json", action="store_true", help="print JSON: {path, nbytes}, or an array of what --list shows"
    )


def execute(args: Namespace) -> int:
    """Run the command and return its exit code."""
    check_range("--threads", args.threads, 1)
    if args.list:
        return _list(args.json)
    if args.model is None:
        raise OptionError("MODEL is missing; --list needs none (edgellm pack --help explains)")
    path = loading.find_file(args.model)
    from .. import packing

    if args.remove:
        removed = packing.remove_packed(path)
        note(f"there was no packed file of {args.model}" if removed is None else f"removed {removed}")
        return 0
    output = None if args.output is None else Path(args.output)
    with Progress() as progress:
        written, nbytes = packing.pack_model(path, output, args.threads, progress)
    print(json.dumps({"path": str(written), "nbytes": nbytes}) if args.json else written)
    return 0


def _list(as_json: bool) -> int:
    from .. import packing

    found = packing.list_packed()
    if as_json:
        items = [{"path": str(p.path), "model": p.model, "nbytes": p.nbytes, "problem": p.problem} for p in found]
        print(json.dumps(items))
        return 0
    if not found:
        print(f"no packed files in {packing.folder()} yet (edgellm pack MODEL writes one)")
    for p in found:
        state = "" if p.problem is None else f"  (not used: {p.problem})"
        print(printable(f"{human_bytes(p.nbytes):>8}  {p.model or p.path}{state}"))
    return 0
