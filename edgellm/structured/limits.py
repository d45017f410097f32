"""How large a schema may be. The compiler recurses, and some keywords cost it far more than their length says.

Measured with llguidance 1.9: 10,000 definitions that refer to one another in a row overflow an 8 MB stack; 40 that are
merged twice each never end; a multipleOf of a million, or 10,000 members of one object, take a minute, 500
patternProperties five. No recursion here. Next hop: `schema.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from ..errors import OptionError
from .endless import refs_of, resolve

MAX_DEPTH = 100
MAX_VALUES = 100_000
MAX_LEVELS = 5_000
"""Levels of nesting that the compiler may have to go through one inside another, following every $ref once."""
MAX_MEMBERS = 1_000
MAX_PATTERN_PROPERTIES = 100
MAX_DIVISORS = 100_000
MAX_MERGED = 20_000


def check_limits(schema: dict[str, Any]) -> None:
    """Raise OptionError, with the value and the limit, if a schema is too much for the compiler."""
    _check_size(schema)
    targets = {ref: resolve(schema, ref) for ref in refs_of(schema)}
    levels = sum(_depth(value) for value in (schema, *targets.values()))
    if levels > MAX_LEVELS:
        raise OptionError(f"schema refers through {levels} levels of nesting; the limit is {MAX_LEVELS}")
    _check_costly(schema)
    merged = _count_merged(schema, targets)
    if merged > MAX_MERGED:
        raise OptionError(
            f"schema grows to more than {MAX_MERGED} parts where $ref is merged with other keywords; refer to less there"
        )


def _check_size(schema: dict[str, Any]) -> None:
    for count, (_, depth) in enumerate(_walk(schema), 1):
        if depth > MAX_DEPTH:
            raise OptionError(f"schema is nested too deeply; the limit is {MAX_DEPTH} levels")
        if count > MAX_VALUES:
            raise OptionError(f"schema has more than {MAX_VALUES} values; make it smaller")


def _check_costly(schema: dict[str, Any]) -> None:
    patterns = divisors = 0
    for value, _ in _walk(schema):
        if not isinstance(value, dict):
            continue
        patterns += _size(value.get("patternProperties"))
        divisors += _divisor(value.get("multipleOf"))
        if (size := _size(value.get("properties"))) > MAX_MEMBERS:
            raise OptionError(f"schema has an object of {size} properties; the limit is {MAX_MEMBERS}")
    if patterns > MAX_PATTERN_PROPERTIES:
        raise OptionError(f"schema has {patterns} patternProperties; the limit is {MAX_PATTERN_PROPERTIES} in all")
    if divisors > MAX_DIVISORS:
        raise OptionError(
            f"schema has multipleOf with too many digits: {divisors} states; the limit is {MAX_DIVISORS} in all"
        )


def _count_merged(schema: dict[str, Any], targets: dict[str, Any]) -> int:
    """Return how many values the compiler goes through where it merges what a $ref names, which it does at every place.

    Definitions that lead back to themselves that way are left out: the compiler refuses them.
    """
    names: list[str | None] = [None, *targets]
    parts = {name: _merged_refs(schema if name is None else targets[name]) for name in names}
    sizes = {name: sum(1 for _ in _walk(schema if name is None else targets[name])) for name in names}
    users: dict[str | None, list[str | None]] = {name: [] for name in names}
    for name, refs in parts.items():
        for ref in refs:
            users[ref].append(name)
    open_refs = {name: len(refs) for name, refs in parts.items()}
    known = [name for name in names if open_refs[name] == 0]
    for name in known:  # grows meanwhile
        sizes[name] += sum(count * sizes[ref] for ref, count in parts[name].items())
        if parts[name] and sizes[name] > MAX_MERGED:
            return sizes[name]
        for user in users[name]:
            open_refs[user] -= 1
            if open_refs[user] == 0:
                known.append(user)
    return 0


def _merged_refs(schema: Any) -> Counter[str]:
    """Count the $ref inside a schema that have other keywords beside them, or are parts of allOf."""
    found: Counter[str] = Counter()
    for value, _ in _walk(schema):
        if isinstance(value, dict):
            if isinstance(value.get("$ref"), str) and len(value) > 1:
                found[value["$ref"]] += 1
            for part in value["allOf"] if isinstance(value.get("allOf"), list) else ():
                if isinstance(part, dict) and isinstance(part.get("$ref"), str) and len(part) == 1:
                    found[part["$ref"]] += 1
    return found


def _divisor(value: Any) -> int:
    """Return about how many states it takes to divide by a number: its digits, as a whole number without zeros at the end."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value or abs(value) == float("inf"):
        return 0
    digits = "".join(map(str, Decimal(repr(value)).as_tuple().digits)).rstrip("0")
    return int(digits or 0) if len(digits) < 20 else 10**20


def _size(value: Any) -> int:
    return len(value) if isinstance(value, dict) else 0


def _depth(value: Any) -> int:
    return max(depth for _, depth in _walk(value))


def _walk(value: Any) -> Iterator[tuple[Any, int]]:
    """Yield every value inside a value, itself included, with its depth. Stop early on what goes in circles."""
    waiting = [(value, 1)]
    while waiting:
        value, depth = waiting.pop()
        yield value, depth
        children = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
        waiting += [(child, depth + 1) for child in children]
