"""The `edgellm` command: finds the sub-command, and turns every failure into one line and an exit code.

It knows no command's options: each command is one file here, imported only when asked for, so that `edgellm --help`
costs an interpreter and argparse. Next hop: the file named after the command; `parser.py` for what they share.
"""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from argparse import Namespace
from collections.abc import Sequence
from importlib import import_module
from typing import Any, Protocol

from .parser import Parser, add_common, command_parser, top_parser
from .terminal import allow_any_character, note, report

COMMANDS = {
    "chat": "talk with a model in the terminal",
    "run": "one answer to one text",
    "serve": "serve models to programs, with OpenAI's interface",
    "bench": "measure prefill and decode speed, and the share of memory bandwidth they use",
    "embed": "vectors of texts for search, or scores of documents for a query",
    "tokenize": "show the tokens of a text",
    "inspect": "say what is in a model file and what it needs",
    "doctor": "say what this machine is and what to expect of it",
    "pack": "write a model's packed weights to a file, for quicker starts",
    "pull": "fetch a model into the cache",
    "list": "list the models in the cache",
    "kernels": "show the compiled kernels, or build them for an application to ship",
}
EXIT_ERROR = 2
EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells report it
EXIT_BROKEN_PIPE = 141  # 128 + SIGPIPE


class Command(Protocol):
    """What a command's file offers."""

    USAGE: str
    DESCRIPTION: str
    EXAMPLES: str

    def add_arguments(self, parser: Parser) -> None: ...

    def execute(self, args: Namespace) -> int: ...


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0, 2 for an error, 130 after Ctrl-C, 141 when the reader went away."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    allow_any_character()
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            code = _dispatch(arguments)
        sys.stdout.flush()  # here, where a closed pipe can still be handled
        return code
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        _give_up_stdout()
        return EXIT_BROKEN_PIPE
    except Exception as error:
        report(error, debug=wants_debug(arguments))
        return EXIT_ERROR


def wants_debug(arguments: Sequence[str]) -> bool:
    """Say whether --debug stands among the options; after `--` it would be text."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    return "--debug" in arguments[:end]


def make_parser(name: str) -> tuple[Parser, Command]:
    """Import the command `name` and return its parser and the command itself."""
    command: Command = import_module(f".{name}", __package__)
    parser = command_parser(name, command.USAGE, command.DESCRIPTION, command.EXAMPLES)
    command.add_arguments(parser)
    add_common(parser)
    return parser, command


def _dispatch(arguments: list[str]) -> int:
    position = next((i for i, word in enumerate(arguments) if not word.startswith("-")), len(arguments))
    top = top_parser(COMMANDS)
    try:
        top.parse_args(arguments[:position])
        if position == len(arguments):
            top.print_help(sys.stderr)
            return EXIT_ERROR
        name = _known(arguments[position])
        parser, command = make_parser(name)
        read = getattr(command, "read_words", Parser.parse_words)  # a command may have other sources beside its words
        args = read(parser, arguments[position + 1 :])
    except SystemExit as done:  # argparse, after --help or --version
        sys.stdout.flush()
        return done.code if isinstance(done.code, int) else 0
    return command.execute(args)


def _known(name: str) -> str:
    if name in COMMANDS:
        return name
    from difflib import get_close_matches

    from ..errors import OptionError

    close = get_close_matches(name, COMMANDS, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(COMMANDS)}"
    raise OptionError(f"no command is called {name!r}: {hint} (edgellm --help explains)")


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    """One line, like everything else; Python's own form shows a source line, which tells a user nothing."""
    note(f"edgellm: {message}")


def _give_up_stdout() -> None:
    """Point standard output at nothing: the interpreter flushes it once more at exit, and must not complain."""
    with contextlib.suppress(OSError, ValueError):  # not a real file, as under a test
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
