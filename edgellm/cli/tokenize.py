"""`edgellm tokenize`: the tokens of a text, as the model's own vocabulary cuts it.

Next hop: `..tokenizer`. The file's tensors are not read: one that holds only a vocabulary is enough.
"""

from __future__ import annotations

import json
from argparse import Namespace
from typing import TYPE_CHECKING

from . import loading
from .options import MODEL_HELP, read_text
from .parser import Parser
from .terminal import printable

if TYPE_CHECKING:
    from ..tokenizer import Tokenizer

USAGE = 'MODEL "TEXT" [options]'
DESCRIPTION = (
    "Show the tokens of TEXT, one a line: its id and the text it stands for, quoted; bytes that are\n"
    "part of a character show as \\xNN. Without TEXT, or with -, standard input is read."
)
EXAMPLES = """\
  edgellm tokenize smollm2 "Hello, world"
  edgellm tokenize smollm2 --special "<|im_start|>user"      one control token, not its letters
  edgellm tokenize smollm2 --json < letter.txt"""


def add_arguments(parser: Parser) -> None:
    """Add the command's options."""
    parser.add_argument("model", metavar="MODEL", help=MODEL_HELP)
    parser.add_argument("text", nargs="?", metavar="TEXT", help="the text (default: standard input)")
    special_help = "read the names of control tokens as such, and add what the model wants in front of and after a text"
    parser.add_argument("--special", action="store_true", help=special_help)
    parser.add_argument("--json", action="store_true", help="print one JSON object: token_ids, pieces")


def execute(args: Namespace) -> int:
    """Run the command and return its exit code."""
    from ..tokenizer import Tokenizer

    text = read_text(args.text)
    tokenizer = Tokenizer.from_gguf(loading.find_file(args.model))
    ids = tokenizer.encode(text, special=args.special)
    if args.json:
        pieces = [_bytes(tokenizer, i).decode("utf-8", "replace") for i in ids]
        print(json.dumps({"token_ids": ids, "pieces": pieces}, ensure_ascii=False))
        return 0
    width = max((len(str(i)) for i in ids), default=1)
    for i in ids:
        print(f"{i:{width}}  {_quoted(_bytes(tokenizer, i))}")
    print(f"{len(ids)} token{'' if len(ids) == 1 else 's'}")
    return 0


def _bytes(tokenizer: Tokenizer, token_id: int) -> bytes:
    """Return what a token stands for; a control token stands for its name here."""
    if tokenizer.is_control(token_id):
        return tokenizer.decode([token_id], special=True).encode()
    return tokenizer.token_bytes(token_id)


def _quoted(piece: bytes) -> str:
    """Show a piece in quotes, so that spaces and line breaks are seen, and half characters as bytes."""
    try:
        text = repr(piece.decode("utf-8"))
    except UnicodeDecodeError:
        text = repr(piece)[1:]
    return printable(text)
