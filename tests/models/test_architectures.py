"""Every architecture on a tiny random model that Transformers built and llama.cpp's converter wrote; answers from Transformers.

tools/make_architectures.py makes the files, and compares with llama.cpp too.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import reference_models as stored

from edgellm import LLM
from edgellm.gguf import open_gguf

architectures = pytest.mark.parametrize("name", stored.NAMES)
MAX_ERROR = 1e-4
"""Of the largest logit: float32 in another order."""
MAX_Q8_ERROR = 0.05
"""Of the logits' standard deviation, root mean square: activations of 8 bits."""
MAX_PRECISE_ERROR = 0.01
"""The same of activations of 15 bits, with experts."""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for unpacked models."""
    return tmp_path_factory.mktemp("architectures")


@architectures
def test_the_reference_says_what_transformers_says(name: str, files: Path) -> None:
    ids, rows, expected = stored.expected(name)
    with open_gguf(stored.unpack(name, files)) as file:
        found = stored.run_reference(file, ids, rows)
    assert np.abs(found - expected).max() <= MAX_ERROR * np.abs(expected).max()


@architectures
@pytest.mark.parametrize("form", ["F32", "Q8_0"])
def test_the_cpu_says_what_the_reference_says(name: str, form: str, files: Path) -> None:
    ids, rows, _ = stored.expected(name)
    path = stored.unpack(name, files)
    if form != "F32":
        path = stored.requantise(path, files / f"{name}.{form}.gguf", form)
    with open_gguf(path) as file:
        expected = stored.run_reference(file, ids, rows)
        program = stored.build(file)
    has_experts = any(op.name == "experts" for op in program.ops)
    # Where two experts are about as good, a rounding sends a token elsewhere, and its row says something else.
    for precise, most, of_rows in ((False, MAX_Q8_ERROR, np.median), (True, MAX_PRECISE_ERROR, np.max)):
        if precise and not has_experts:
            break
        if not precise and has_experts and program.state_layers:
            continue  # what that token leaves in the states, all rows after it read
        options = {"precise": precise, "spec": "off", "cache_type_k": "f16", "cache_type_v": "f16"}
        with LLM.load(path, threads=2, **options) as llm:
            found = llm.logits([int(i) for i in ids])[rows]
        errors = np.sqrt(np.mean(np.square(found - expected), axis=1)) / expected.std()
        error = of_rows(errors) if has_experts else np.sqrt(np.mean(np.square(errors)))
        assert error <= most, f"{error:.4f} of the logits' deviation"


@architectures
def test_the_bits_are_the_same_whatever_the_threads_chunks_batch_rewind_prefix_and_guesses(
    name: str, files: Path
) -> None:
    ids = [int(i) for i in stored.expected(name)[0]]
    path = stored.requantise(stored.unpack(name, files), files / f"{name}.bits.gguf", "Q8_0")
    options = {"max_tokens": 24, "temperature": 1.0, "seed": 3, "ignore_eos": True}
    prompts = [ids[:100], ids[50:90] * 2, ids[:60] + ids[90:120]]
    with LLM.load(path, threads=1, spec="off") as llm:
        logits = llm.logits(ids)
        alone = [llm.generate(prompt, **options).token_ids for prompt in prompts]
    with LLM.load(path, threads=2, prefill_chunk=7, spec="off", max_sequences=3) as llm:
        assert llm.logits(ids).tobytes() == logits.tobytes(), "threads and chunks"
        streams = [llm.stream(prompt, **options) for prompt in prompts]
        assert [stream.finish().token_ids for stream in streams] == alone, "in one batch"
        assert [llm.generate(prompt, **options).token_ids for prompt in prompts] == alone, "after a shared prefix"
    with LLM.load(path, threads=2, spec="ngram") as llm:
        speculator = llm.loaded.engine.speculator
        assert speculator is not None
        speculator._always = True  # guess as much as there is room for
        assert [llm.generate(prompt, **options).token_ids for prompt in prompts] == alone, (
            "with guesses, most of them wrong"
        )
