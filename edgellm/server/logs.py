"""The server's log on standard error: lines for people, or one JSON object a line. Knows records of logging only."""

from __future__ import annotations

import json
import logging
import sys
from datetime import datetime, timezone
from typing import IO, Any

LOGGERS = ("edgellm.server", "uvicorn")


class JsonLines(logging.Formatter):
    """time, level, and what the record brings along in `fields`; else its message."""

    def format(self, record: logging.LogRecord) -> str:
        """See logging."""
        when = datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds")
        found: dict[str, Any] = {"time": when.replace("+00:00", "Z"), "level": record.levelname.lower()}
        fields = getattr(record, "fields", None)
        found |= (
            {"event": "message", "message": record.getMessage()} if fields is None else {"event": "request", **fields}
        )
        if record.exc_info:
            found["traceback"] = self.formatException(record.exc_info)
        return json.dumps(found, ensure_ascii=True, default=str)


class TextLines(logging.Formatter):
    """The local time, the level, the message."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s", "%Y-%m-%d %H:%M:%S")


def configure(form: str, level: str, stream: IO[str] | None = None) -> logging.Handler:
    """Log from now on in this form, what is at least as important as level. -> the handler. stream: standard error if None."""
    handler = logging.StreamHandler(stream if stream is not None else sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    for name in LOGGERS:
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        # uvicorn tells of every start and end: what this server says itself is enough.
        logger.setLevel(max(getattr(logging, level.upper()), logging.WARNING if name == "uvicorn" else 0))
    return handler
