"""Listen and serve until told to stop. Next hop: `app.py`; uvicorn speaks HTTP."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable

from ..errors import ResourceError
from .app import make_app
from .models import ServedModels
from .settings import ServerSettings

STOP_S = 30
"""How long answers in flight may take to end when the server is stopped; a second Ctrl-C cuts them."""


def serve(models: ServedModels, settings: ServerSettings, on_listening: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM. on_listening: called with the address. Raises ResourceError if it cannot listen."""
    import uvicorn

    listener = listen(settings)
    host, port = settings.host, listener.getsockname()[1]
    config = uvicorn.Config(
        make_app(models, settings),
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=STOP_S,
        h11_max_incomplete_event_size=64 << 10,
        lifespan="on",
    )
    on_listening(f"http://{f'[{host}]' if ':' in host else host}:{port}")
    uvicorn.Server(config).run(sockets=[listener])


def listen(settings: ServerSettings) -> socket.socket:
    """A socket that listens on the settings' host and port."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        if os.name == "posix":  # else a port stays taken for a minute after its last connection
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((settings.host, settings.port))
        listener.listen(128)
    except OSError as error:
        listener.close()
        where = f"{settings.host}:{settings.port}"
        why = os.strerror(error.errno) if error.errno else str(error)
        raise ResourceError(
            f"cannot listen on {where}: {why}; choose another with --port, 0 takes a free one"
        ) from None
    return listener
