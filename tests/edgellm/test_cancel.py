"""Cancelling on real kernels: whoever is beside a cancelled prompt gets the bits of being alone. Cases O12, O13."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from tiny_models import write_tiny

from edgellm import LLM, SamplingParams
from edgellm.kernels.ops import Aborted

PROMPTS = [[70, 75, 72, 79], [3, 77, 40] * 30]
FREE = SamplingParams(max_tokens=60, temperature=2.0, top_k=0, top_p=1.0, min_p=0.0, seed=5, ignore_eos=True)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cancel") / "m.gguf"
    return write_tiny(path, "gemma3", formats="Q8_0", layers=6, hidden=256, ffn=512, window=70)


def count_aborted(llm: LLM) -> list[bool]:
    """Note every step that ended early."""
    aborted: list[bool] = []
    forward = llm.loaded.engine.runner.forward

    def watched(*args: object) -> object:
        try:
            return forward(*args)  # type: ignore[arg-type]
        except Aborted:
            aborted.append(True)
            raise

    llm.loaded.engine.runner.forward = watched  # type: ignore[assignment, method-assign]
    return aborted


def test_prompts_cancelled_at_any_time_change_nobodys_bits(model: Path) -> None:
    with LLM.load(model, threads=2, max_sequences=3, max_context=1024) as llm:
        expected = [llm.generate(prompt, FREE).token_ids for prompt in PROMPTS]
    with LLM.load(model, threads=2, max_sequences=3, max_context=1024) as llm:
        aborted, answers = count_aborted(llm), [llm.stream(prompt, FREE) for prompt in PROMPTS]
        for stream in answers:
            next(stream)
        for number in range(12):
            unwanted = llm.stream([(number + i * 7) % 100 + 3 for i in range(900)], FREE)
            time.sleep(0.001 * number)
            unwanted.close()
            assert unwanted.completion is not None and unwanted.completion.finish_reason == "cancelled"
            for stream in answers:
                next(stream, None)
        assert [stream.finish().token_ids for stream in answers] == expected
        assert aborted, "no step ended early"


def test_a_closed_model_ends_a_prompt_at_once(model: Path) -> None:
    llm = LLM.load(model, threads=2, max_context=1024)
    errors: list[BaseException] = []

    def ask() -> None:
        try:
            llm.generate([5] * 1000, FREE)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    while not llm.loaded.engine.has_work:
        pass
    llm.close()
    for thread in threads:
        thread.join(30)
    assert len(errors) == 3 and all("closed" in str(error) for error in errors)
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("edgellm")]
