"""What a server is told when it starts, checked. Knows no request. Next hop: `app.py`."""

from __future__ import annotations

from dataclasses import dataclass

from ..config_checks import check_int, check_number
from ..errors import OptionError

DEFAULT_PORT = 8080
LOG_FORMATS = ("text", "json")
LOG_LEVELS = ("debug", "info", "warning", "error")
LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True)
class ServerSettings:
    """host, port: where it listens; port 0 takes a free one. api_key: what requests must carry, None for nothing.

    cors_origins: web pages that may call, "*" for all; none by default. allowed_hosts: names it answers to beside the loopback's.
    max_body: bytes of a request. max_nesting: arrays and objects within each other. max_queue: requests that run and wait
    together, beyond which others are told to come again. max_answers: `n` at most. request_timeout: seconds an answer may take,
    None for any time. stop_timeout: seconds that answers in flight may take to end when the server is stopped. keep_alive:
    seconds after which a model that nobody asks is unloaded, None for never.
    log_format, log_level: of lines on standard error. log_content: they also say what was asked and answered.
    """

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    api_key: str | None = None
    cors_origins: tuple[str, ...] = ()
    allowed_hosts: tuple[str, ...] = ()
    max_body: int = 16 << 20
    max_nesting: int = 64
    max_queue: int = 64
    max_answers: int = 16
    request_timeout: float | None = None
    keep_alive: float | None = None
    stop_timeout: float = 30.0
    log_format: str = "text"
    log_level: str = "info"
    log_content: bool = False

    def __post_init__(self) -> None:
        check_int("port", self.port, 0, 65535)
        check_int("max_body", self.max_body, 1)
        check_int("max_nesting", self.max_nesting, 1)
        check_int("max_queue", self.max_queue, 1)
        if self.api_key is not None and (not self.api_key or not self.api_key.isascii()):
            raise OptionError("api_key must be a text of ASCII letters, as a header can carry it")
        check_number("stop_timeout", self.stop_timeout, 0)
        for name, known in (("log_format", LOG_FORMATS), ("log_level", LOG_LEVELS)):
            if getattr(self, name) not in known:
                raise OptionError(f"{name} must be one of {', '.join(known)}, not {getattr(self, name)!r}")
        for name in ("request_timeout", "keep_alive"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise OptionError(
                    f"{name} must be a number of seconds above 0, not {value!r}; leave it out for no limit"
                )

    @property
    def is_loopback(self) -> bool:
        """True if only programs of this machine can reach it."""
        return self.host in LOOPBACK
