"""Write the arguments of a call key by key, for families whose own form is not JSON.

Knows JSON and schemas only. Next hops: `tagged.py`, `gemma4.py`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ..calls import Calls
from ..reader import MalformedError


class Arguments:
    """The arguments of one call, which is announced here. Raises MalformedError for a name that was not offered."""

    def __init__(self, calls: Calls, name: str) -> None:
        calls.begin(name)
        self._calls = calls
        properties = calls.offered[name].get("properties", {})
        self._properties: Mapping[str, Any] = properties if isinstance(properties, Mapping) else {}
        self._keys: set[str] = set()

    def schema_of(self, key: str) -> Mapping[str, Any]:
        """Return the schema of an argument, an empty one where nothing is said."""
        schema = self._properties.get(key)
        return schema if isinstance(schema, Mapping) else {}

    def add(self, key: str, value: Any) -> None:
        """Write an argument. Raises MalformedError for one that came already, or that JSON cannot hold."""
        if key in self._keys:
            raise MalformedError
        lead = ", " if self._keys else "{"
        self._keys.add(key)
        try:
            text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        except ValueError:
            raise MalformedError from None
        self._calls.write(f"{lead}{json.dumps(key, ensure_ascii=False)}: {text}")

    def end(self) -> None:
        """Finish the call."""
        self._calls.write("}" if self._keys else "{}")
        self._calls.end()
