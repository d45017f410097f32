"""Listen and serve until told to stop. Next hops: `app.py`; `ending.py`; uvicorn speaks HTTP."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable
from types import FrameType

import uvicorn

from ..errors import ResourceError
from .app import make_app
from .ending import CUT_S, Ending
from .logs import configure
from .models import ServedModels
from .settings import ServerSettings


class Server(uvicorn.Server):
    """uvicorn's, which ends as `Ending` has it: it goes on answering, and sends new work away, until all is done or cut."""

    def __init__(self, models: ServedModels, settings: ServerSettings) -> None:
        app = make_app(models, settings)
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=round(CUT_S),
            h11_max_incomplete_event_size=64 << 10,
            lifespan="on",
        )
        super().__init__(config)
        self.ending = Ending(app.state.desk, settings.stop_timeout)
        self.was_interrupted = False

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A signal: the first ends, the second cuts, the third waits for nobody."""
        self.was_interrupted |= sig == signal.SIGINT
        self.ending.ask()
        if self.ending.num_asked > 2:
            self.should_exit = True

    async def on_tick(self, counter: int) -> bool:
        """See uvicorn: ten times a second."""
        return await super().on_tick(counter) or self.ending.is_over()


def serve(models: ServedModels, settings: ServerSettings, on_listening: Callable[[str], None]) -> None:
    """Serve until SIGINT, which raises KeyboardInterrupt in the end, or SIGTERM. on_listening: called with the address.

    Raises ResourceError if it cannot listen.
    """
    listener = listen(settings)
    host, port = settings.host, listener.getsockname()[1]
    configure(settings.log_format, settings.log_level)
    server = Server(models, settings)
    on_listening(f"http://{f'[{host}]' if ':' in host else host}:{port}")
    server.run(sockets=[listener])
    if server.was_interrupted:
        raise KeyboardInterrupt


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
