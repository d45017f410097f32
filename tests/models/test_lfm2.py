"""LFM2: what a file must say, and what a model with layers that have a state does in the engine on real kernels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import reference_models as stored

from edgellm import LLM
from edgellm.cache import states
from edgellm.config import EngineConfig
from edgellm.errors import EdgeLLMError, ModelFileError, StateError, UnsupportedError
from edgellm.estimate import estimate
from edgellm.gguf import open_gguf
from edgellm.inspect import summarise
from edgellm.models import lfm2


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lfm2")
    return stored.requantise(stored.unpack("lfm2", folder), folder / "q8.gguf", "Q8_0")


@pytest.mark.parametrize(
    ("key", "value", "error", "says"),
    [
        ("shortconv.l_cache", None, ModelFileError, "lacks lfm2.shortconv.l_cache"),
        ("shortconv.l_cache", 1, ModelFileError, "l_cache is 1, but must be a whole number from 2"),
        ("shortconv.l_cache", 5, ModelFileError, "blk.0.shortconv.conv.weight has the shape"),
        (
            "attention.head_count_kv",
            np.array([0, 3, 0, 0]),
            ModelFileError,
            "head_count_kv is 3, but must be a divisor",
        ),
        ("attention.head_count_kv", np.array([0, 2, 0]), ModelFileError, "4 whole numbers of at least 0"),
        ("attention.head_count_kv", np.array([2, 2, 0, 0]), ModelFileError, "lacks the tensor blk.0.attn_q"),
        ("attention.causal", False, UnsupportedError, "encoders of this family"),
    ],
)
def test_files_that_lie(path: Path, key: str, value: Any, error: type[EdgeLLMError], says: str) -> None:
    with open_gguf(path) as file:
        metadata = {**file.metadata, f"lfm2.{key}": value}
        if value is None:
            del metadata[f"lfm2.{key}"]
        with pytest.raises(error, match=says):
            lfm2.build(metadata, file.tensors)


def test_memory_counts_records(path: Path) -> None:
    with open_gguf(path) as file:
        found, program = summarise(file), lfm2.build(file.metadata, file.tensors)
    records = states.state_bytes(program.state_layers, 1)
    assert [layer.width for layer in program.state_layers] == [128] * 3 and len(program.cache_layers) == 1
    assert found.as_dict()["state_bytes"] == records > 0
    assert estimate(str(path), EngineConfig(max_context=256)).cache_bytes > records
    with LLM.load(path, threads=1, max_context=256) as llm:
        cache = llm.loaded.cache
        assert cache.states is not None and cache.states.nbytes == records < cache.nbytes


def test_what_outlives_the_process_is_refused(path: Path, tmp_path: Path) -> None:
    with LLM.load(path, threads=1, max_context=256) as llm:
        llm.generate(list(range(40)), max_tokens=3)
        assert llm.loaded.storage is None
        with pytest.raises(StateError, match="lfm2 cannot save or load states"):
            llm.save_state(tmp_path / "state")
        with pytest.raises(StateError, match="lfm2 cannot save or load states"):
            llm.load_state(tmp_path / "state")


def test_a_window_drops_keys_and_values_only(path: Path) -> None:
    """States see every token; how a long text is cut into steps changes nothing, and taking ids back past the window is exact."""
    options = {"max_tokens": 150, "temperature": 1.0, "seed": 4, "ignore_eos": True}
    answers = []
    for spec, chunk in (("off", 32), ("ngram", 9)):
        with LLM.load(path, threads=1, max_context=64, on_full="window", spec=spec, prefill_chunk=chunk) as llm:
            if llm.loaded.engine.speculator is not None:
                llm.loaded.engine.speculator._always = True
            answers.append(llm.generate(list(range(20, 50)), **options).token_ids)
    assert answers[0] == answers[1] and len(answers[0]) == 150


@pytest.mark.parametrize("size", ["small", "large"])
def test_a_conversation_says_what_a_new_process_says(path: Path, size: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if size == "large":
        monkeypatch.setattr(states, "SMALL_BYTES", 0)
    options = {"max_tokens": 12, "temperature": 1.0, "seed": 1, "ignore_eos": True}
    text = [int(i) for i in np.random.default_rng(0).integers(3, 280, 90)]
    with LLM.load(path, threads=1, max_context=400, spec="ngram") as llm:
        assert llm.loaded.engine.speculator is not None
        llm.loaded.engine.speculator._always = True
        for turn in range(3):
            answers = [
                llm.generate(text, **options).token_ids for _ in range(2)
            ]  # what is new, then the last token only
            with LLM.load(path, threads=2, max_context=400, spec="off", prefill_chunk=37) as cold:
                answers.append(cold.generate(text, **options).token_ids)
            assert answers[0] == answers[1] == answers[2]
            text = [*text, *answers[0], turn + 5]
