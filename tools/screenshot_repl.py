"""Draw a picture of `edgellm chat` with a real model: `python tools/screenshot_repl.py -o docs/repl.svg`.

The lines are asked for real, through the REPL's own session and drawing; the picture is an SVG as rich exports it. At
temperature 0 the answers, and so the picture but for its speeds, are the same wherever it is made.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

from edgellm import LLM, SamplingParams
from edgellm.cli.repl.live_screen import LiveScreen, make_console
from edgellm.cli.repl.screen import View
from edgellm.cli.repl.session import Session

LINES = (
    "Give me three tips for learning to cook. Use a short list.",
    "/undo",
    "/set temperature 0",
    "Write a Python function that says whether a number is even.",
    "/tokens",
    "/stats",
)
MAX_BYTES = 200_000


def hold(llm: LLM, name: str, lines: list[str], console: Console) -> None:
    """Type `lines` into a session and draw on `console` what a terminal would show."""
    params = SamplingParams(temperature=0.0, max_tokens=160)
    view = View()
    session = Session(llm, name, params, None, lambda: LiveScreen(console, view, is_live=False), view)
    say(
        console,
        f"{name}, {llm.max_context} tokens of context. /help lists the commands, /exit or Ctrl-D leaves.",
        "dim",
    )
    for line in lines:
        say(console, f"> {line}")
        notes = io.StringIO()
        with contextlib.redirect_stderr(notes):
            session.take(line)
        say(console, notes.getvalue().rstrip("\n"), "dim")


def say(console: Console, text: str, style: str = "") -> None:
    """Print a text, unless there is none."""
    if text:
        console.print(Text(text, style, overflow="fold"))


def main() -> int:
    """Make the picture and say where it is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lines", nargs="*", metavar="LINE", help="what is typed (default: a few lines that show most)")
    parser.add_argument("-m", "--model", default="smollm2", help="the model (default: %(default)s)")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE", help="where to write the SVG")
    parser.add_argument("-w", "--width", type=int, default=88, help="columns (default: %(default)s)")
    args = parser.parse_args()
    console = make_console(
        record=True, file=io.StringIO(), width=args.width, force_terminal=True, color_system="truecolor"
    )
    say(console, "$ edgellm chat", "bold")
    with LLM.load(args.model) as llm:
        hold(llm, args.model, args.lines or list(LINES), console)
    picture = console.export_svg(title="edgellm chat", clear=False)
    if len(picture.encode()) > MAX_BYTES:
        print(f"the picture has {len(picture.encode())} bytes, more than {MAX_BYTES}; ask for less", file=sys.stderr)
        return 1
    args.output.write_text(picture, "utf-8", newline="\n")
    print(console.export_text())
    print(f"wrote {args.output} ({len(picture.encode()) // 1000} kB)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
