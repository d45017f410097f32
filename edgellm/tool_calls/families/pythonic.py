"""Calls in Python's words: `[get_weather(city="Paris", days=2), roll()]`, between marks, in a fence, or as the whole answer.

LFM 2 writes `<|tool_call_start|>[...]<|tool_call_end|>`, Gemma 3 a fence of `tool_code`. Only names and literals are read, as
Python's own parser sees them; nothing is run. Source: the models' cards and chat templates.
"""

from __future__ import annotations

import ast
import json
import re

from ..calls import Calls
from ..reader import MalformedError, Reader, Steps

MAX_CHARS = 20_000
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_KNOWN_ESCAPES = "\\'\"abfnrtvxuUN0\n"


def read_python(reader: Reader, calls: Calls, closer: str) -> Steps[None]:
    """Read a list of calls, or one, up to a closer or the end. Raises MalformedError for anything else."""
    text = yield from reader.read_until(closer, or_end=True)
    found = parse_calls(text)
    if not found or any(name not in calls.offered for name, _ in found):
        raise MalformedError
    for name, arguments in found:
        calls.begin(name)
        calls.write(arguments)
        calls.end()
    reader.settle()


def parse_calls(text: str) -> list[tuple[str, str]]:
    """Return names and arguments as JSON. Raises MalformedError unless all are calls by keyword with literal values."""
    if len(text) > MAX_CHARS:  # the parser recurses, and its memory grows with the text
        raise MalformedError
    try:
        tree = ast.parse(_ESCAPE.sub(_mend, text.strip()), mode="eval").body
        found = tree.elts if isinstance(tree, ast.List) else [tree]
        return [_read_one(call) for call in found]
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        raise MalformedError from None


def _mend(escape: re.Match[str]) -> str:
    """Double the backslash of an escape that Python does not know, as in patterns: it would print a warning."""
    return escape[0] if escape[1] in _KNOWN_ESCAPES else "\\" + escape[0]


def _read_one(call: ast.expr) -> tuple[str, str]:
    if not isinstance(call, ast.Call) or call.args:
        raise MalformedError
    arguments = {}
    for keyword in call.keywords:
        if keyword.arg is None:
            raise MalformedError
        arguments[keyword.arg] = ast.literal_eval(keyword.value)
    return ast.unparse(call.func), json.dumps(arguments, ensure_ascii=False, allow_nan=False)
