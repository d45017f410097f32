"""The chat page and its two files, from the package. Nothing in a request names a file: there is one route for each.

Next hop: `page/chat.js`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:;"
    " base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


def route(name: str, media_type: str) -> Callable[[Request], Awaitable[Response]]:
    """A route that answers with one file of the page."""
    body = (files(__package__) / "page" / name).read_bytes()

    async def answer(request: Request) -> Response:
        """The chat page."""
        return Response(body, media_type=media_type, headers=HEADERS)

    return answer
