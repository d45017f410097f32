"""Who may ask: checked before anything of a request is read. A web page must not use a model behind its reader's back.

ASGI around the application. Source of the danger: DNS rebinding and cross-site requests to services of the loopback. Knows
headers and sizes, no route's meaning. Next hop: `app.py`.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import JSONResponse

from .problems import ApiError
from .settings import LOOPBACK, ServerSettings

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]

OPEN_PATHS = ("/health", "/livez", "/ping", "/", "/page/chat.js", "/page/chat.css")
"""What needs no key: it tells nothing and costs nothing."""


class Guard:
    """Refuses what is not meant for this server, then lets the application answer."""

    def __init__(self, app: Application, settings: ServerSettings) -> None:
        self._app, self._settings = app, settings

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """See ASGI."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        try:
            self._check(scope, headers)
        except ApiError as error:
            answer = JSONResponse(error.body_for(scope["path"]), error.status, error.headers)
            await answer(scope, receive, send)
            return
        await self._app(scope, self._limited(receive), send)

    def _check(self, scope: Message, headers: Headers) -> None:
        self._check_host(headers.get("host", ""))
        if (origin := headers.get("origin")) is not None:
            self._check_origin(origin, headers.get("host", ""))
        if scope["method"] == "OPTIONS":
            return
        if scope["path"] not in OPEN_PATHS:
            self._check_key(headers.get("authorization", ""))
        if scope["method"] == "POST":
            kind = headers.get("content-type", "").partition(";")[0].strip().lower()
            if kind != "application/json":  # what a web page may send without being asked is not JSON
                raise ApiError(415, f"the content type is {kind or 'missing'}; it must be application/json")
            size = headers.get("content-length", "0")
            if size.isdecimal() and int(size) > self._settings.max_body:
                raise self._too_large()

    def _check_host(self, host: str) -> None:
        name = urlsplit(f"//{host}").hostname or ""
        if not self._settings.is_loopback or name in (*LOOPBACK, *self._settings.allowed_hosts):
            return
        raise ApiError(403, f"this server answers to localhost, not to the name {name!r} (--allowed-host adds names)")

    def _check_origin(self, origin: str, host: str) -> None:
        allowed = self._settings.cors_origins
        if "*" in allowed or origin in allowed or urlsplit(origin).netloc == host:
            return
        raise ApiError(403, f"pages of {origin} may not use this server (--cors-origin lets them)")

    def _check_key(self, authorization: str) -> None:
        key = self._settings.api_key
        if key is None:
            return
        given = authorization.removeprefix("Bearer ").strip()
        if not hmac.compare_digest(given.encode(), key.encode()):
            raise ApiError(401, "the API key is missing or wrong; send it as 'Authorization: Bearer KEY'")

    def _too_large(self) -> ApiError:
        return ApiError(413, f"the body is larger than {self._settings.max_body} bytes, the limit (--max-body)")

    def _limited(self, receive: Receive) -> Receive:
        """Count what comes: a length that was given may be a lie, and chunks have none."""
        size = 0

        async def counted() -> Message:
            nonlocal size
            message = await receive()
            if message["type"] == "http.request":
                size += len(message.get("body", b""))
                if size > self._settings.max_body:
                    raise self._too_large()
            return message

        return counted
