"""A server with a tiny random model."""

from __future__ import annotations

import gc
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from running_server import OPTIONS, running
from tiny_models import write_tiny

from edgellm.server.models import ServedModels
from edgellm.server.settings import ServerSettings


@pytest.fixture(scope="module", autouse=True)
def swept() -> Iterator[None]:
    """Collects what a client or a browser's driver has left open before another module's tests would be blamed for it."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gc.collect()


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("served") / "tiny.gguf", formats="Q8_0", tied=False, vocab=300)


@pytest.fixture(scope="module")
def address(tiny: Path) -> Iterator[str]:
    """A server whose model is called "tiny"."""
    with running(ServedModels({"tiny": str(tiny)}, OPTIONS), ServerSettings(port=0)) as address:
        with httpx.Client(base_url=address) as client:
            for _ in range(200):
                if client.get("/health").status_code == 200:
                    break
                threading.Event().wait(0.05)
        yield address


@pytest.fixture
def client(address: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=address, timeout=60) as client:
        yield client


@pytest.fixture
def serve(tiny: Path) -> Callable[..., Any]:
    """A maker of servers with other settings."""
    return lambda **settings: running(ServedModels({"tiny": str(tiny)}, OPTIONS), ServerSettings(port=0, **settings))
