"""Finds schemas that every answer would have to go on in forever, such as an object that must hold itself.

Knows the keywords that make an answer hold or satisfy something else. It errs on one side: what it names has no end, what
it lets pass may still have none, and then runs into max_tokens. No recursion: schemas come from strangers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote


def refs_of(schema: Any) -> set[str]:
    """Return the distinct texts of all $ref inside a schema."""
    return {value["$ref"] for value in _objects_in(schema) if isinstance(value.get("$ref"), str)}


def resolve(root: Any, ref: str) -> Any:
    """Return what a $ref inside the schema itself points to; True, which asks for nothing, where it leads elsewhere."""
    if ref != "#" and not ref.startswith("#/"):
        return True
    value = root
    for part in ref.split("/")[1:]:
        key = unquote(part).replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict) and key in value:
            value = value[key]
        elif isinstance(value, list) and key.isdecimal() and int(key) < len(value):
            value = value[int(key)]
        else:
            return True
    return value


def find_endless(root: dict[str, Any]) -> str | None:
    """Return a $ref that no finite answer can satisfy and that the whole schema depends on, or None.

    Each object needs some others, each in one of several ways. What needs nothing has an end; from there it spreads.
    """
    objects = {id(value): value for value in _objects_in(root)}
    open_needs: dict[int, int] = {}
    served_by: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)  # an object -> whose need, and which
    for key, schema in objects.items():
        needs = [[id(way) for way in ways] for ways in _needs(root, schema) if all(isinstance(w, dict) for w in ways)]
        open_needs[key] = len(needs)
        for number, ways in enumerate(needs):
            for way in ways:
                served_by[way].append((key, number))
    served: set[tuple[int, int]] = set()
    ending = [key for key, count in open_needs.items() if count == 0]
    for key in ending:  # grows meanwhile
        for need in served_by[key]:
            if need not in served:
                served.add(need)
                open_needs[need[0]] -= 1
                if open_needs[need[0]] == 0:
                    ending.append(need[0])
    if open_needs[id(root)] == 0:
        return None
    refs: list[str] = [s["$ref"] for key, s in objects.items() if open_needs[key] and isinstance(s.get("$ref"), str)]
    return min(refs)


def _needs(root: Any, schema: dict[str, Any]) -> Iterator[list[Any]]:
    """Yield what an answer must satisfy or hold besides: for each, the ways to do so."""
    if isinstance(schema.get("$ref"), str):
        yield [resolve(root, schema["$ref"])]
    for part in _list(schema.get("allOf")):
        yield [part]
    for word in ("anyOf", "oneOf"):
        if ways := _list(schema.get(word)):
            yield ways
    kinds = schema.get("type")
    kind = kinds[0] if isinstance(kinds, list) and len(kinds) == 1 else kinds
    properties = schema.get("properties")
    if kind == "object" and isinstance(properties, dict):
        for name in _list(schema.get("required")):
            if isinstance(name, str) and name in properties:
                yield [properties[name]]
    if kind == "array" and isinstance(schema.get("minItems"), (int, float)):
        first = _list(schema.get("prefixItems"))
        items = [*first, schema.get("items", True)]
        for item in items[: max(0, int(min(schema["minItems"], len(items))))]:
            yield [item]


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _objects_in(value: Any) -> Iterator[dict[str, Any]]:
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            yield value
        waiting += value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
