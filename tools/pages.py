"""Tables on a Markdown page, between markers that say which program writes them; used by the tools that measure.

A section looks like `<!-- begin formats -->` ... `<!-- end formats -->`. What stands around it is a person's.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Sequence
from pathlib import Path


class PageError(Exception):
    """A page lacks the section that was to be written."""


def put_section(path: Path, section: str, text: str) -> None:
    """Write `text` between the markers of `section`; a page that is not there yet is made of this section alone."""
    begin, end = f"<!-- begin {section} -->", f"<!-- end {section} -->"
    block = f"{begin}\n{text.strip()}\n{end}"
    page = path.read_text(encoding="utf-8") if path.exists() else block + "\n"
    if page.count(begin) != 1 or page.count(end) != 1 or page.index(begin) > page.index(end):
        raise PageError(f"{path} needs the lines {begin} and {end}, once each, where the table is to stand")
    page = page[: page.index(begin)] + block + page[page.index(end) + len(end) :]
    path.write_text(page, encoding="utf-8", newline="\n")


def make_table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table; all columns but the first are aligned to the right."""
    lines = [titles, ["---", *["---:"] * (len(titles) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def make_columns(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return the same table for a terminal."""
    widths = [max(map(len, column)) for column in zip(titles, *rows, strict=True)]
    return "\n".join(
        "  ".join(cell.rjust(w) if i else cell.ljust(w) for i, (cell, w) in enumerate(zip(line, widths, strict=True)))
        for line in [titles, *rows]
    )


def describe_machine(threads: int | None = None) -> str:
    """Return one line: CPU, logical cores, instruction level, and the threads that were used."""
    from edgellm import __version__
    from edgellm.kernels.cpu import objects

    used = "" if threads is None else f", {threads} thread{'s' * (threads > 1)}"
    level = objects.choose_level().level.name
    return f"{_cpu_name()}, {os.cpu_count()} logical cores, level {level}{used}, edgellm {__version__}"


def _cpu_name() -> str:
    try:
        found = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found[1].strip() if found else platform.processor() or platform.machine()
