"""GBNF, llama.cpp's grammar notation, into the parser's own (Lark's).

A rule that cannot come back to itself becomes a terminal, which is one regular expression and loses nothing; only rules
that recurse stay rules. Knows no tokens. Source: llama.cpp, grammars/README.md. Next hop: `gbnf_syntax.py` reads the text.
"""

from __future__ import annotations

import itertools
import re

from ..errors import OptionError
from .gbnf_syntax import Chars, Group, Item, Literal, Repeat, RuleName, parse

ROOT = "root"


def is_gbnf(text: str) -> bool:
    """Say whether a grammar is written in GBNF: rules with `::=`."""
    return re.search(r"(?m)^[ \t]*[\w-]+[ \t]*::=", text) is not None


def to_lark(text: str) -> str:
    """Return the same grammar in Lark's notation.

    Raises OptionError with the line for what is not GBNF, for rules that are missing and for a grammar without a root,
    UnsupportedError for llama.cpp's token references.
    """
    rules = parse(text)
    if ROOT not in rules:
        raise OptionError("grammar has no beginning: GBNF wants a rule `root ::= ...`")
    used = {name: _names_in(body) for name, body in rules.items()}
    for name, others in used.items():
        for missing in others - rules.keys():
            raise OptionError(f"grammar has no rule {missing!r}, which {name!r} uses")
    plain = _find_plain(used)
    names = {name: f"T{i}" if name in plain else f"r{i}" for i, name in enumerate(rules)}
    writer = _Writer(names, plain)
    lines = [f"start: {names[ROOT]}"]
    lines += [f"{names[name]}: {writer.write(body, is_rule=name not in plain)}" for name, body in rules.items()]
    return "\n".join(lines + writer.terminals) + "\n"


def _names_in(body: Group) -> set[str]:
    found: set[str] = set()
    waiting: list[Item] = [body]
    while waiting:
        item = waiting.pop()
        if isinstance(item, RuleName):
            found.add(item.name)
        elif isinstance(item, Repeat):
            waiting.append(item.item)
        elif isinstance(item, Group):
            waiting += [part for sequence in item.sequences for part in sequence]
    return found


def _find_plain(used: dict[str, set[str]]) -> set[str]:
    """Return the rules that use only such rules in turn: taken away layer by layer, what recurses stays."""
    users: dict[str, list[str]] = {name: [] for name in used}
    waits_for = {name: len(names) for name, names in used.items()}
    for name, names in used.items():
        for other in names:
            users[other].append(name)
    plain = [name for name, count in waits_for.items() if count == 0]
    for name in plain:  # grows meanwhile
        for user in users[name]:
            waits_for[user] -= 1
            if waits_for[user] == 0:
                plain.append(user)
    return set(plain)


class _Writer:
    """Writes items in Lark's notation. terminals: lines of those that have no name in the grammar."""

    def __init__(self, names: dict[str, str], plain: set[str]) -> None:
        self.terminals: list[str] = []
        self._names = names
        self._plain = plain

    def write(self, item: Item, is_rule: bool) -> str:
        """Write an item of a rule, or of a terminal: there everything is one expression anyway."""
        if isinstance(item, Literal):
            return "/" + "".join(_char(c) for c in item.text) + "/" if item.text else '""'
        if isinstance(item, Chars):
            ranges = "".join(_char(low) if low == high else f"{_char(low)}-{_char(high)}" for low, high in item.ranges)
            return f"/[{'^' if item.is_negated else ''}{ranges}]/"
        if isinstance(item, RuleName):
            return self._names[item.name]
        if isinstance(item, Repeat):
            return f"({self.write(item.item, is_rule)}){_times(item.low, item.high)}"
        return f"({' | '.join(self._sequence(sequence, is_rule) for sequence in item.sequences)})"

    def _sequence(self, sequence: tuple[Item, ...], is_rule: bool) -> str:
        """Write a sequence. Neighbours that do not recurse become one terminal: where one ends is then no question."""
        parts = []
        for is_plain, items in itertools.groupby(sequence, lambda item: is_rule and self._is_plain(item)):
            texts = [self.write(item, is_rule and not is_plain) for item in items]
            parts += [self._terminal(" ".join(texts))] if is_plain else texts
        return " ".join(parts) or '""'

    def _terminal(self, text: str) -> str:
        name = f"X{len(self.terminals)}"
        self.terminals.append(f"{name}: {text}")
        return name

    def _is_plain(self, item: Item) -> bool:
        return _names_in(Group(((item,),))) <= self._plain


def _times(low: int, high: int | None) -> str:
    short = {(0, None): "*", (1, None): "+", (0, 1): "?"}.get((low, high))
    return short or (f"{{{low},}}" if high is None else f"{{{low},{high}}}")


def _char(char: str) -> str:
    return char if char.isascii() and char.isalnum() else f"\\x{{{ord(char):x}}}"
