"""Where a request stands among those that wait: how urgent it is, and whose. Next hop: `..admission`, which takes turns."""

from __future__ import annotations

import hashlib
from typing import Any

from starlette.requests import Request

from ..request import MAX_PRIORITY
from .fields import Fields

MAX_NAME = 128
"""Characters of a `user` that are looked at."""


def read_standing(request: Request, fields: Fields) -> dict[str, Any]:
    """Options of LLM.stream: `priority` as vLLM has it (the lower the sooner), and the client that the request is of."""
    priority = fields.whole("priority", -MAX_PRIORITY, MAX_PRIORITY, 0)
    return {"priority": priority, "client": client_of(request, fields)}


def client_of(request: Request, fields: Fields | None = None) -> str:
    """A name for who asks: the field `user`, else the key that came along, else the address. No key can be read out of it."""
    if fields is not None and isinstance(user := fields.get("user"), str) and user:
        return f"user {user[:MAX_NAME]}"
    if key := request.headers.get("authorization"):
        return f"key {hashlib.blake2b(key.encode(), digest_size=6).hexdigest()}"
    return f"address {request.client.host}" if request.client is not None else "address unknown"
