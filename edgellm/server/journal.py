"""One line of log for each request, and a name for it: `x-request-id` comes back as it came, or is made.

ASGI around everything else, so that what is refused is noted too. Says nothing of what was asked and answered, unless
--log-content wants it. Knows no route. Next hop: `logs.py` gives lines their shape; `answering.py` says what a request had.
"""

from __future__ import annotations

import json
import logging
import re
import time
import uuid
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..completion import Completion
from .settings import ServerSettings
from .standing import client_of

log = logging.getLogger("edgellm.server")

HEADER = "x-request-id"
MAX_PATH = 200
MAX_CONTENT = 64 << 10
"""Characters of a text that is logged."""
_ID = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}")
_KEY = "edgellm.record"


class Record:
    """What is known of a request. status: 0 while there is none. done: what it was answered, None if it was not."""

    def __init__(self, request_id: str, method: str, path: str, client: str) -> None:
        self.id, self.method, self.path, self.client = request_id, method, path, client
        self.status = 0
        self.model: str | None = None
        self.error: str | None = None
        self.done: list[Completion] | None = None
        self.asked: Any = None
        self.answered: list[str] | None = None
        self._start_s = time.perf_counter()

    def fields(self) -> dict[str, Any]:
        """What a line of log says; what is not known is left out."""
        found: dict[str, Any] = {
            "id": self.id,
            "method": self.method,
            "path": self.path,
            "status": self.status,
            "seconds": round(time.perf_counter() - self._start_s, 4),
            "client": self.client,
            "model": self.model,
            "error": self.error,
        }
        if self.done:
            first = self.done[0].timings
            found |= {
                "prompt_tokens": sum(one.timings.prefill_tokens for one in self.done),
                "cached_tokens": sum(one.timings.reused_tokens for one in self.done),
                "answer_tokens": sum(len(one.token_ids) for one in self.done),
                "finish_reasons": [one.finish_reason for one in self.done],
                "queued_seconds": round(first.queued_s, 4),
                "first_token_seconds": round(first.ttft_s, 4),
                "tokens_per_second": round(first.decode_tps, 2),
            }
        found |= {"asked": self.asked, "answered": self.answered}
        return {name: value for name, value in found.items() if value is not None}


def record_of(request: Request) -> Record:
    """The record of a request; one that nobody reads where there is no journal."""
    found: Record | None = request.scope.get(_KEY)
    return found if found is not None else Record("", request.method, "", "")


class Journal:
    """Names each request and logs it when it has ended."""

    def __init__(self, app: ASGIApp, settings: ServerSettings) -> None:
        self._app, self._settings = app, settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get(HEADER, "")
        request_id = given if _ID.fullmatch(given) else uuid.uuid4().hex
        record = scope[_KEY] = Record(request_id, scope["method"], scope["path"][:MAX_PATH], client_of(Request(scope)))

        async def named(message: Message) -> None:
            if message["type"] == "http.response.start":
                record.status = message["status"]
                MutableHeaders(scope=message)[HEADER] = record.id
            await send(message)

        try:
            await self._app(scope, receive, named)
        except BaseException as error:
            record.status = record.status or 500
            record.error = record.error or type(error).__name__
            raise
        finally:
            _tell(record)


def _tell(record: Record) -> None:
    is_work = record.method != "GET"  # who asks for health and metrics asks again and again
    level = (
        logging.ERROR if record.status >= 500 and record.status != 503 else logging.INFO if is_work else logging.DEBUG
    )
    if log.isEnabledFor(level):
        fields = record.fields()
        log.log(level, "%s", _line(fields), extra={"fields": fields})


def _line(fields: dict[str, Any]) -> str:
    """For people. What came from outside may hold anything, so it is escaped."""
    words = [fields["method"], _plain(fields["path"]), str(fields["status"]), f"in {fields['seconds']:.3f} s"]
    if "answer_tokens" in fields:
        words.append(
            f"{fields['prompt_tokens']} tokens ({fields['cached_tokens']} cached) -> {fields['answer_tokens']}, "
            f"first after {fields['first_token_seconds']:.3f} s, then {fields['tokens_per_second']:g} a second"
        )
    words += [f"{name}={_plain(fields[name])}" for name in ("model", "client", "error", "id") if name in fields]
    words += [f"{name}={json.dumps(fields[name])}" for name in ("asked", "answered") if name in fields]
    return " ".join(words)


def _plain(text: str) -> str:
    return text if text.isascii() and text.isprintable() and " " not in text else json.dumps(text)


def shortened(value: Any) -> Any:
    """A text no longer than is logged, which says so; other things as JSON if they are longer."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if len(text) <= MAX_CONTENT:
        return value
    return f"{text[:MAX_CONTENT]} ... and {len(text) - MAX_CONTENT} characters more"
