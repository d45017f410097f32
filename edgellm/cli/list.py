"""`edgellm list`: the models in the cache, and the aliases that are not there yet.

Next hop: `..hub`.
"""

from __future__ import annotations

import json
from argparse import Namespace

from .parser import Parser
from .terminal import human_bytes, printable

USAGE = "[options]"
DESCRIPTION = "List the models in the cache: name, size, file. Their folder is EDGELLM_HOME or the user's cache folder."
EXAMPLES = """\
  edgellm list
  edgellm list --json"""


def add_arguments(parser: Parser) -> None:
    """Add the command's options."""
    parser.add_argument("--json", action="store_true", help="print a JSON array of {name, path, nbytes}")


def execute(args: Namespace) -> int:
    """Run the command and return its exit code."""
    from ..hub import ALIASES, home, list_local

    models = list_local()
    if args.json:
        print(json.dumps([{"name": m.name, "path": str(m.path), "nbytes": m.nbytes} for m in models]))
        return 0
    if not models:
        print(f"no models in {home()} yet")
    width = max((len(m.name) for m in models), default=0)
    for m in models:
        print(printable(f"{m.name:{width}}  {human_bytes(m.nbytes):>8}  {m.path}"))
    missing = sorted(set(ALIASES) - {m.name for m in models})
    if missing:
        print(f"not fetched yet: {', '.join(missing)} (edgellm pull NAME)")
    return 0
