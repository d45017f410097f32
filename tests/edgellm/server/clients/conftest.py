"""A server with two models for clients of all kinds: "tiny" says anything, "caller" calls a function and uses its result."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import platformdirs
import pytest
from reciting_model import write_reciting
from running_server import running
from tiny_models import write_tiny

from edgellm.server.models import ServedModels
from edgellm.server.settings import ServerSettings

OPTIONS = {"threads": 2, "max_context": 1024, "max_sequences": 4}


@pytest.fixture(scope="session")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The files of both models by name."""
    folder = tmp_path_factory.mktemp("clients")
    tiny = write_tiny(folder / "tiny.gguf", formats="Q8_0", tied=False, vocab=300, context=2048)
    return {"tiny": str(tiny), "caller": str(write_reciting(Path(folder / "caller.gguf")))}


@pytest.fixture(scope="module")
def address(sources: dict[str, str]) -> Iterator[str]:
    with running(ServedModels(sources, OPTIONS), ServerSettings(port=0)) as address:
        yield address


@pytest.fixture(scope="module")
def serve(sources: dict[str, str]) -> Callable[..., Any]:
    """A maker of servers with other settings."""
    return lambda **settings: running(ServedModels(sources, OPTIONS), ServerSettings(port=0, **settings))


@pytest.fixture(scope="module")
def busy(serve: Callable[..., Any]) -> Iterator[tuple[str, Callable[[], None]]]:
    """The address of a server that takes no more, and what lets it take more again."""
    body = {"model": "tiny", "messages": [{"role": "user", "content": "Hi"}], "stream": True}
    body |= {
        "ignore_eos": True,
        "max_tokens": 900,
        "n": 16,
        "logprobs": True,
        "top_logprobs": 20,
    }  # many seconds of work
    # Two clients fill it, with a key and without: one that has nothing in it yet may be let in beside the other.
    keys: tuple[dict[str, str], ...] = ({"Authorization": "Bearer none"}, {})
    with serve(max_queue=1) as address, httpx.Client(base_url=address, timeout=60) as client, ExitStack() as stack:
        kept = []  # what reads an answer closes it when it is collected
        for key in keys:
            asked = client.stream("POST", "/v1/chat/completions", json=body, headers=key)
            kept.append(stack.enter_context(asked).iter_bytes())
            next(kept[-1])
        yield address, stack.close


@pytest.fixture(scope="session")
def javascript(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder where scripts find OpenAI's client.

    npm installs it into the user's cache (edgellm-tests/openai-js there), once for each version that package.json names.
    """
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        pytest.skip("node or npm is missing (Debian: apt install nodejs npm)")
    version = int(subprocess.check_output([node, "-p", "process.versions.node.split('.')[0]"], text=True))
    if version < 18:
        pytest.skip(f"node is version {version}; OpenAI's client needs 18")
    package = Path(__file__).with_name("package.json")
    cache = platformdirs.user_cache_path("edgellm-tests") / "openai-js"
    cache /= hashlib.sha256(package.read_bytes()).hexdigest()[:12]
    if not (cache / "done").exists():
        cache.mkdir(parents=True, exist_ok=True)
        shutil.copy(package, cache)
        command = [npm, "install", "--prefix", str(cache), "--no-audit", "--no-fund", "--ignore-scripts"]
        command += ["--fetch-retries=1", "--fetch-timeout=30000"]  # a machine without a network is told so soon
        done = subprocess.run(command, cwd=cache, capture_output=True, text=True, timeout=180)
        if done.returncode:
            pytest.skip(f"npm cannot install OpenAI's client: {' '.join(done.stderr.split())[-300:]}")
        (cache / "done").touch()
    folder = tmp_path_factory.mktemp("js")
    (folder / "node_modules").symlink_to(cache / "node_modules", target_is_directory=True)
    return folder


@pytest.fixture(scope="module")
def litellm() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # or its import asks the internet for a list of prices
        litellm = pytest.importorskip("litellm", reason="litellm is missing (pip install -e '.[clients]')")
        litellm.telemetry = False
        yield litellm
