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
writers = pytest.mark.parametrize("name", [name for name in stored.NAMES if name not in stored.ENCODERS])
encoders = pytest.mark.parametrize("name", stored.ENCODERS)
MAX_ERROR = 1e-4
"""Of the largest logit: float32 in another order."""
MAX_ERRORS = {("F32", False): 0.005, ("Q8_0", True): 0.01, ("Q8_0", False): 0.1}
"""Of the logits' standard deviation, root mean square, by format and whether activations have 15 bits. With 8 bits a row of 64
averages little, and what goes on in deeper layers is that much coarser: with 15 the same kernels leave a tenth of it."""


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
@pytest.mark.parametrize(("form", "precise"), MAX_ERRORS)
def test_the_cpu_says_what_the_reference_says(name: str, form: str, precise: bool, files: Path) -> None:
    """With experts a rounding may send a token elsewhere, where two are about as good: its row then says something else, and so
    do all later ones where layers have a state. So the median row counts there, and 8 bits say nothing."""
    ids, rows, _ = stored.expected(name)
    path = stored.unpack(name, files)
    if form != "F32":
        path = stored.requantise(path, files / f"{name}.{form}.gguf", form)
    with open_gguf(path) as file:
        has_experts = any(op.name == "experts" for op in stored.build(file).ops)
        if has_experts and (form, precise) == ("Q8_0", False):
            return
        expected = stored.run_reference(file, ids, rows)
    with LLM.load(path, threads=2, spec="off", precise=precise) as llm:
        found = stored.answer(llm, ids)[rows]
    errors = np.sqrt(np.mean(np.square(found - expected), axis=1)) / expected.std()
    error = np.median(errors) if has_experts else np.sqrt(np.mean(np.square(errors)))
    assert error <= MAX_ERRORS[form, precise], f"{error:.4f} of the logits' deviation"


@encoders
def test_an_encoders_bits_are_the_same_whatever_the_threads_batch_and_layout(name: str, files: Path) -> None:
    ids = [int(i) for i in stored.expected(name)[0]]
    path = stored.requantise(stored.unpack(name, files), files / f"{name}.bits.gguf", "Q8_0")
    texts = [ids, ids[:1], ids[90:], ids[:7], ids[3:12] * 8, ids[50:90]]
    with LLM.load(path, threads=1) as llm:
        alone = [llm.embed_tokens([text])[0].tobytes() for text in texts]
    with LLM.load(path, threads=2, prefill_chunk=7, weights="raw") as llm:
        assert [rows.tobytes() for rows in llm.embed_tokens(texts)] == alone, "in one batch"
        assert [rows.tobytes() for rows in llm.embed_tokens(texts[::-1])][::-1] == alone, "after others"


@writers
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
