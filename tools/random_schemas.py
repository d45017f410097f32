"""Random JSON Schemas whose answers have an end, the same for the same seed. Knows no model."""

from __future__ import annotations

import random
import string
from typing import Any

MAX_DEPTH = 3
PATTERNS = ("^[A-Z][a-z]{2,8}$", "^[0-9]{3}-[0-9]{4}$", "^(red|green|blue)(, (red|green|blue)){0,3}$", "^#[0-9a-f]{6}$")
FORMATS = ("date", "time", "date-time", "ipv4", "uuid")
WORDS = ("name", "city", "age", "items", "price", "tags", "kind", "count", "note", "is open", 'a "b"', "größe", "x/y~z")


def make_schema(seed: int) -> dict[str, Any]:
    """Return a schema of an object, some levels deep."""
    rng = random.Random(seed)
    schema = _object(rng, 0)
    if rng.random() < 0.3:
        schema["$defs"] = {"shared": _any(rng, MAX_DEPTH - 1)}
        schema["properties"]["shared one"] = {"$ref": "#/$defs/shared"}
        schema["required"].append("shared one")
    return schema


def bound_tokens(schema: Any) -> int:
    """Return a number of tokens that a usual answer stays below: about one a character, and blanks between parts."""
    if isinstance(schema, dict):
        own = 8 + schema.get("maxLength", 0) * 3 + (120 if {"pattern", "format", "multipleOf"} & schema.keys() else 0)
        times = schema.get("maxItems", 1)
        return own + times * sum(bound_tokens(v) + len(str(k)) for k, v in schema.items() if k != "maxLength")
    if isinstance(schema, (list, tuple)):
        return sum(bound_tokens(v) for v in schema)
    return 4 + len(str(schema))


def _any(rng: random.Random, depth: int) -> dict[str, Any]:
    makers = [_string, _integer, _number, _plain, _enum]
    if depth < MAX_DEPTH:
        makers += [_object, _array, _any_of]
    return rng.choice(makers)(rng, depth)


def _object(rng: random.Random, depth: int) -> dict[str, Any]:
    names = rng.sample(WORDS, rng.randint(1, 4))
    return {
        "type": "object",
        "properties": {name: _any(rng, depth + 1) for name in names},
        "required": [name for name in names if rng.random() < 0.7],
        "additionalProperties": False,
    }


def _array(rng: random.Random, depth: int) -> dict[str, Any]:
    low = rng.randint(0, 2)
    schema: dict[str, Any] = {"type": "array", "items": _any(rng, depth + 1), "minItems": low}
    return schema | {"maxItems": low + rng.randint(0, 2)}


def _any_of(rng: random.Random, depth: int) -> dict[str, Any]:
    return {"anyOf": [_any(rng, depth + 1) for _ in range(rng.randint(2, 3))]}


def _string(rng: random.Random, depth: int) -> dict[str, Any]:
    kind = rng.random()
    if kind < 0.25:
        return {"type": "string", "pattern": rng.choice(PATTERNS)}
    if kind < 0.45:
        return {"type": "string", "format": rng.choice(FORMATS)}
    low = rng.randint(0, 5)
    return {"type": "string", "minLength": low, "maxLength": low + rng.randint(0, 25)}


def _integer(rng: random.Random, depth: int) -> dict[str, Any]:
    low = rng.randint(-1000, 1000)
    schema = {"type": "integer", "minimum": low, "maximum": low + rng.randint(3, 5000)}
    return schema | ({"multipleOf": rng.choice((2, 3))} if rng.random() < 0.2 else {})


def _number(rng: random.Random, depth: int) -> dict[str, Any]:
    low = round(rng.uniform(-10, 10), 2)
    word = rng.choice(("maximum", "exclusiveMaximum"))
    return {"type": "number", "minimum": low, word: low + rng.randint(1, 50)} | (
        {"multipleOf": 0.25} if rng.random() < 0.5 else {}  # exact in binary: the validator divides floats
    )


def _plain(rng: random.Random, depth: int) -> dict[str, Any]:
    return {"type": rng.choice(("boolean", "null", ["boolean", "null"]))}


def _enum(rng: random.Random, depth: int) -> dict[str, Any]:
    letters = string.ascii_letters + ' "\\\né'
    texts = ["".join(rng.choices(letters, k=rng.randint(1, 12))) for _ in range(rng.randint(1, 5))]
    return {"const": texts[0]} if len(texts) == 1 else {"enum": [*dict.fromkeys(texts), rng.choice((1, None, True))]}
