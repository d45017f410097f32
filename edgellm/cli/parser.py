"""argparse, as every command here wants it: one-line errors, help that reads the same on every Python version.

It knows no option but --debug. Next hop: `options.py` for the options commands share.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from ..errors import OptionError
from ..version import __version__

MAX_WIDTH = 100
_SHIELD = "\0"  # no shell can pass one
DEBUG_HELP = "show a traceback when something fails"
TOP_USAGE = "edgellm COMMAND [options]"
TOP_DESCRIPTION = "Run GGUF language models on this computer's CPU. `edgellm chat` is the place to start."
TOP_EXAMPLES = """\
  edgellm chat                          fetch a small model (98 MB) and talk with it
  edgellm run "Why is the sky blue?"    one answer
  edgellm chat ./model.gguf             your own file
  edgellm COMMAND --help                more about one command

A model is a GGUF file, an alias (smollm2, gemma3-270m), or owner/repo[:file-or-quant] on Hugging Face.
EDGELLM_HOME names the folder that keeps models; NO_COLOR=1 switches colours off."""


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """argparse's formatter with one shape for options, `-n, --max-tokens N`, whatever the Python version."""

    def __init__(self, prog: str, **kwargs: Any) -> None:
        width = min(shutil.get_terminal_size().columns, MAX_WIDTH)
        super().__init__(prog, **{"max_help_position": 28, "width": width, **kwargs})

    def _format_action_invocation(self, action: argparse.Action) -> str:
        names = ", ".join(action.option_strings)
        if not names:
            return str(action.metavar or action.dest)
        return names if action.nargs == 0 else f"{names} {action.metavar or action.dest.upper()}"


def _bare(word: Any) -> Any:
    return word.removeprefix(_SHIELD) if isinstance(word, str) else word


class Parser(argparse.ArgumentParser):
    """A parser whose complaints are raised as OptionError, for `main` to print like any other."""

    def __init__(self, prog: str, usage: str, description: str, epilog: str) -> None:
        super().__init__(
            prog=prog,
            usage=usage,
            description=description,
            epilog=epilog,
            formatter_class=HelpFormatter,
            allow_abbrev=False,
            add_help=False,
        )

    def parse_words(self, arguments: Sequence[str], into: argparse.Namespace | None = None) -> argparse.Namespace:
        """Parse options and positionals in any order (`MODEL -n 5 TEXT`); after `--` everything is a positional.

        into: where what is found goes; a new one with all defaults if None.
        """
        cut = arguments.index("--") if "--" in arguments else len(arguments)
        # argparse forgets the `--` when options and positionals mix, so what follows hides its dashes behind a NUL.
        shielded = [*arguments[:cut], *(f"{_SHIELD}{word}" for word in arguments[cut + 1 :])]
        args = self.parse_intermixed_args(shielded, into)
        for name, value in vars(args).items():
            if isinstance(value, str):
                setattr(args, name, value.removeprefix(_SHIELD))
            elif isinstance(value, list):
                setattr(args, name, [_bare(word) for word in value])
        return args

    def parse_given(self, arguments: Sequence[str]) -> dict[str, Any]:
        """Return {name: value} of what stands there, without any defaults."""
        blank = argparse.Namespace(**{action.dest: None for action in self._actions if action.option_strings})
        args = self.parse_words(arguments, blank)
        return {name: value for name, value in vars(args).items() if value is not None and value != []}

    def error(self, message: str) -> NoReturn:
        raise OptionError(f"{message.replace(_SHIELD, '')} ({self.prog} --help explains)")


def add_common(parser: Parser) -> None:
    """Add the options that every command has."""
    parser.add_argument("--debug", action="store_true", help=DEBUG_HELP)
    parser.add_argument("-h", "--help", action="help", help="show this text and exit")


def command_parser(name: str, usage: str, description: str, examples: str) -> Parser:
    """Make the parser of the command `name`, still without options; `usage` is what follows the name."""
    return Parser(f"edgellm {name}", f"edgellm {name} {usage}", description, f"examples:\n{examples.rstrip()}")


def top_parser(commands: Mapping[str, str]) -> Parser:
    """Make the parser of what stands before the command; `commands` maps each name to its line of help."""
    width = max(map(len, commands))
    listing = "\n".join(f"  {name:{width}}  {line}" for name, line in commands.items())
    parser = Parser("edgellm", TOP_USAGE, f"{TOP_DESCRIPTION}\n\ncommands:\n{listing}", f"examples:\n{TOP_EXAMPLES}")
    parser.add_argument(
        "--version", action="version", version=f"edgellm {__version__}", help="show the version and exit"
    )
    add_common(parser)
    return parser
