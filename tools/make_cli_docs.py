"""Write docs/cli.md from the help texts of the command line: `python tools/make_cli_docs.py` (`--check` only compares).

A test fails when the page is out of date.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from unittest import mock

from edgellm.cli.dispatch import COMMANDS, make_parser
from edgellm.cli.parser import Parser, top_parser

PAGE = Path(__file__).parents[1] / "docs" / "cli.md"
WIDTH = 96
HEAD = """\
# The command line

Written by `tools/make_cli_docs.py` from what `--help` prints; change the help text, not this page.

Errors are one line on standard error; the exit code is then 2 (130 after Ctrl-C, 141 when the reader of a pipe went
away). Answers and results go to standard output, progress and notes to standard error.
"""


def make_page() -> str:
    """Return the whole page."""
    sections = [("edgellm", top_parser(COMMANDS)), *((f"edgellm {name}", make_parser(name)[0]) for name in COMMANDS)]
    return HEAD + "".join(f"\n## {title}\n\n```text\n{help_text(parser)}```\n" for title, parser in sections)


def help_text(parser: Parser) -> str:
    """Return the help of one parser as a pipe of WIDTH columns gets it, on any terminal."""
    with mock.patch.dict(os.environ, COLUMNS=str(WIDTH), NO_COLOR="1"):
        return "\n".join(line.rstrip() for line in parser.format_help().split("\n"))


def main() -> int:
    """Write the page, or with --check say whether it is up to date."""
    page = make_page()
    if "--check" in sys.argv[1:]:
        is_current = PAGE.is_file() and PAGE.read_text("utf-8") == page
        print(f"{PAGE.name} is {'up to date' if is_current else 'out of date: run python tools/make_cli_docs.py'}")
        return 0 if is_current else 1
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page, "utf-8", newline="\n")
    print(f"wrote {PAGE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
