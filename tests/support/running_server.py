"""A real server in a thread of its own, on a free port."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from edgellm.server.app import make_app
from edgellm.server.models import ServedModels
from edgellm.server.serving import listen
from edgellm.server.settings import ServerSettings

OPTIONS = {"threads": 2, "max_context": 256, "max_sequences": 4}


@contextmanager
def running(models: ServedModels, settings: ServerSettings) -> Iterator[str]:
    """Serve in a thread. -> the address."""
    listener = listen(settings)
    config = uvicorn.Config(make_app(models, settings), log_level="warning", lifespan="on", timeout_graceful_shutdown=5)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])))
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(20)
        assert not thread.is_alive()
