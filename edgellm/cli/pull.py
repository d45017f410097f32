"""`edgellm pull`: fetch a model into the cache and say where it lies.

Next hop: `..hub`, which knows names, hashes and interrupted downloads.
"""

from __future__ import annotations

from argparse import Namespace

from .options import MODEL_HELP
from .parser import Parser
from .progress import Progress

USAGE = "NAME [options]"
DESCRIPTION = (
    "Fetch a model into the cache, check it, and print the path of its file.\n"
    "A model that is already there and sound is not fetched again; an interrupted download is taken up."
)
EXAMPLES = """\
  edgellm pull gemma3-270m
  edgellm pull bartowski/Qwen2.5-0.5B-Instruct-GGUF:Q4_K_M
  EDGELLM_HOME=/data/models edgellm pull smollm2"""


def add_arguments(parser: Parser) -> None:
    """Add the command's options."""
    parser.add_argument("name", metavar="NAME", help=MODEL_HELP)


def execute(args: Namespace) -> int:
    """Run the command and return its exit code."""
    from ..hub import pull

    with Progress() as progress:
        path = pull(args.name, progress)
    print(path)
    return 0
