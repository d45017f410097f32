"""close() gives everything back, whatever is going on: threads, memory, files; and says so to those who wait. Case O12."""

from __future__ import annotations

import gc
import threading
import weakref
from pathlib import Path

import psutil
import pytest
from tiny_models import write_tiny

from edgellm import LLM
from edgellm.errors import EdgeLLMError, ResourceError
from edgellm.kernels.cpu.backend import CpuBackend


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(
        tmp_path_factory.mktemp("close") / "m.gguf", formats="Q8_0", layers=6, hidden=256, ffn=512, context=2048
    )


def own_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("edgellm")]


def test_closing_in_the_middle_of_everything(model: Path) -> None:
    files = psutil.Process().open_files()
    llm = LLM.load(model, threads=3, max_sequences=2, weights="packed")
    backend = llm.loaded.engine.runner.backend
    assert isinstance(backend, CpuBackend) and len(own_threads()) == 2
    memory = [weakref.ref(matrix.data) for matrix in backend.weights.matrices.values()]
    memory += [weakref.ref(room) for room in backend._memory.values()]
    del backend
    assert len(memory) > 20 and all(ref() is not None for ref in memory)
    errors: list[str] = []

    def ask(prompt: list[int]) -> None:
        try:
            llm.generate(prompt, ignore_eos=True)
        except EdgeLLMError as error:
            errors.append(str(error))

    asking = [threading.Thread(target=ask, args=([i] * n,)) for i, n in ((5, 3), (6, 1500), (7, 2))]
    suspended = llm.stream([8], ignore_eos=True)
    for thread in asking:
        thread.start()
    next(suspended)
    closing = [threading.Thread(target=llm.close) for _ in range(3)]
    for thread in [*closing, *asking]:
        if thread in closing:
            thread.start()
    for thread in [*closing, *asking]:
        thread.join(60)
        assert not thread.is_alive()
    llm.close()
    assert len(errors) == 3 and all("closed" in error for error in errors), errors
    with pytest.raises(EdgeLLMError, match="closed"):
        list(suspended)
    assert own_threads() == [] and psutil.Process().open_files() == files
    gc.collect()
    assert [ref() for ref in memory if ref() is not None] == [], "its memory stays though the model is closed"
    with pytest.raises(ResourceError):
        llm.loaded.cache.address(0)
