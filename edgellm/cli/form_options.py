"""Options that say what an answer must look like, and their way into SamplingParams.

Next hop: `..structured`, which checks what is given here against the model.
"""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from ..config import SamplingParams
from ..errors import OptionError
from .parser import Parser
from .text_file import read_text

FILE_LIMIT = 1 << 20


def add_form(parser: Parser) -> None:
    """Add what `form_fields` reads. At most one of them may be given."""
    add = parser.add_argument_group("the answer's form, at most one of").add_argument
    add("--json-object", action="store_true", help="any JSON object")
    add("-j", "--json-schema", metavar="SCHEMA", help="JSON that this JSON Schema describes; '{}' is any JSON")
    add("--json-schema-file", metavar="FILE", help="the same, from a file")
    add("--regex", metavar="REGEX", help="text that the regular expression matches as a whole")
    add("--grammar", metavar="GRAMMAR", help="text of a grammar in llama.cpp's GBNF or in Lark's notation")
    add("--grammar-file", metavar="FILE", help="the same, from a file")
    add("--choice", action="append", default=[], metavar="TEXT", help="one of these texts; to be repeated")


def form_fields(args: Namespace) -> dict[str, Any]:
    """Return the fields of SamplingParams that say what an answer must look like; their defaults where none was added."""
    if not hasattr(args, "choice"):
        return {"json": False, "schema": None, "regex": None, "grammar": None, "choices": ()}
    return {
        "json": args.json_object,
        "schema": _one_of("json-schema", args.json_schema, args.json_schema_file),
        "regex": args.regex,
        "grammar": _one_of("grammar", args.grammar, args.grammar_file),
        "choices": tuple(args.choice),
    }


def check_form(params: SamplingParams) -> None:
    """Raise OptionError or UnsupportedError for a form that no model could keep."""
    if params.is_structured:
        from .. import structured

        structured.check_form(params)


def _one_of(name: str, text: str | None, path: str | None) -> str | None:
    if path is None:
        return text
    if text is not None:
        raise OptionError(f"give --{name} or --{name}-file, not both")
    return read_text(path, f"--{name}-file {path}", FILE_LIMIT, f"{FILE_LIMIT >> 20} MiB")
