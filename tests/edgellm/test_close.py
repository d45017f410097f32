"""close() gives everything back, whatever is going on: threads, memory, files; and says so to those who wait. Case O23."""

from __future__ import annotations

import threading
from pathlib import Path

import psutil
import pytest
from tiny_models import write_tiny

from edgellm import LLM
from edgellm.errors import EdgeLLMError


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Weights of about 40 MB, once packed."""
    path = tmp_path_factory.mktemp("close") / "m.gguf"
    sizes = {"layers": 6, "hidden": 768, "ffn": 2048, "heads": 12, "kv_heads": 4, "head_dim": 64}
    return write_tiny(path, formats="Q8_0", **sizes)


def own_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("edgellm")]


def test_closing_in_the_middle_of_everything(model: Path) -> None:
    LLM.load(model, threads=2).close()  # what comes with the first load stays: kernels, libraries
    process = psutil.Process()
    before, files = process.memory_info().rss, process.open_files()
    llm = LLM.load(model, threads=3, max_sequences=2, weights="packed")
    assert process.memory_info().rss - before > 20e6 and len(own_threads()) == 2
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
    assert own_threads() == [] and process.open_files() == files
    assert process.memory_info().rss - before < 20e6, "its memory stays though the model is closed"
    assert llm.vocab_size > 0, "and the LLM is still there"
