"""A request's form as one grammar in llguidance's own notation. Mistakes that need no model are found here.

Knows neither tokens nor models. Next hops: `schema.py` and `endless.py` for JSON Schema, `gbnf.py`, and `vocabulary.py`,
which compiles what is made here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..config import SamplingParams
from ..errors import OptionError
from .gbnf import is_gbnf, to_lark
from .schema import schema_text

MAX_GRAMMAR_CHARS = 200_000
MAX_RULES = 2_000
MAX_NESTING = 100
MAX_HEAD_CHARS = 500
MAX_CHOICES = 10_000
BLANKS_PATTERN = r"\n? {0,20}"
"""What may stand between two tokens of JSON: enough for any usual indentation, and never a run of empty lines."""

# In each of these a character has one way to match only: a text without a colon must not take minutes to refuse.
_RULE = re.compile(r"(?m)^[ \t]*[?!]?[\w-][^:\n]*:")
_START = re.compile(r"(?m)^[ \t]*[?!]?start(?![\w-])")
_COLON = re.compile(r"\s*(?:(?:\[[^\]]*\]|\{[^}]*\})\s*)?:")
_JSON_OPTIONS = {
    "whitespace_pattern": BLANKS_PATTERN,
    "item_separator": ",",
    "key_separator": ":",
    "lenient": False,
    "coerce_one_of": False,
}


@dataclass(frozen=True, slots=True)
class Grammar:
    """What the parser compiles.

    text: in llguidance's notation. name: what the user called it, for messages. bounds_runs: it is JSON, where a run of
    blanks or digits without an end means nothing.
    """

    text: str
    name: str
    bounds_runs: bool = False


def grammar_of(params: SamplingParams) -> Grammar:
    """Return the grammar that params ask for. Raises OptionError for what is wrong or too large."""
    from llguidance import LLMatcher

    if params.json:
        return _json('{"type": "object"}', "json")
    if params.schema is not None:
        return _json(schema_text(params.schema), "schema")
    if params.regex is not None:
        _check_text("regex", params.regex)
        return Grammar(LLMatcher.grammar_from_regex(params.regex), "regex")
    if params.grammar is not None:
        return _written(params.grammar)
    return Grammar(LLMatcher.grammar_from_lark(_choice(params.choices)), "choices")


def _json(schema: str, name: str) -> Grammar:
    from llguidance import LLMatcher

    try:
        return Grammar(LLMatcher.grammar_from_json_schema(schema, overrides=_JSON_OPTIONS), name, bounds_runs=True)  # type: ignore[arg-type]
    except ValueError as error:
        raise OptionError(f"{name} cannot be used: {error}") from None


def _written(text: str) -> Grammar:
    from llguidance import LLMatcher

    _check_text("grammar", text)
    lark = to_lark(text) if is_gbnf(text) else text
    if not _has_start(lark):
        raise OptionError("grammar has no beginning: GBNF wants a rule `root ::= ...`, Lark a rule `start: ...`")
    return Grammar(LLMatcher.grammar_from_lark(lark), "grammar")


def _has_start(lark: str) -> bool:
    """True if it has the rule that it begins with. Looks at little behind each `start`: a text may hold thousands."""
    heads = (lark[found.end() : found.end() + MAX_HEAD_CHARS] for found in _START.finditer(lark))
    return any(_COLON.match(head) for head in heads)


def _choice(choices: tuple[str, ...]) -> str:
    if len(choices) > MAX_CHOICES:
        raise OptionError(f"choices has {len(choices)} texts; the limit is {MAX_CHOICES}")
    size = sum(map(len, choices))
    if size > MAX_GRAMMAR_CHARS:
        raise OptionError(f"choices has {size} characters in all; the limit is {MAX_GRAMMAR_CHARS}")
    # One terminal: a text that begins another one then needs no thought.
    return "start: CHOICE\nCHOICE: " + " | ".join(f"/{_literal(text)}/" for text in choices)


def _literal(text: str) -> str:
    """A regular expression that matches a text only."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise OptionError(f"choices must be valid text; {text!a} holds half a character") from None
    return "".join(c if c.isalnum() else f"\\x{{{ord(c):x}}}" for c in text)


def _check_text(name: str, text: str) -> None:
    """Refuse what could overwhelm the compiler, which recurses."""
    if len(text) > MAX_GRAMMAR_CHARS:
        raise OptionError(f"{name} has {len(text)} characters; the limit is {MAX_GRAMMAR_CHARS}")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise OptionError(f"{name} must be valid text; it holds half a character") from None
    depth = deepest = 0
    for char in re.sub(r"\\.", "", text):
        depth += (char in "([{") - (char in ")]}")
        deepest = max(deepest, depth)
    if deepest > MAX_NESTING:
        raise OptionError(f"{name} is nested {deepest} brackets deep; the limit is {MAX_NESTING}")
    rules = len(_RULE.findall(text)) if name == "grammar" else 0
    if rules > MAX_RULES:
        raise OptionError(f"{name} has {rules} rules; the limit is {MAX_RULES}")
