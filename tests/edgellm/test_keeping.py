"""What outlives the process, with real kernels on tiny models: the same bits as cold, from disk and from a saved state."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tiny_models import write_tiny

from edgellm import LLM, SamplingParams, keeping, loader
from edgellm.config import EngineConfig
from edgellm.errors import EdgeLLMError, ResourceError, StateError
from edgellm.sequence import Sequence

PROMPT = [(i * 37 + i // 5) % 110 + 1 for i in range(150)]
GREEDY = SamplingParams(max_tokens=8, temperature=0.0, ignore_eos=True)
SMALL = {"max_context": 256, "prefill_chunk": 64, "threads": 2, "spec": "off"}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    return {
        "llama": write_tiny(folder / "llama.gguf", formats="Q8_0", tied=False),
        "other": write_tiny(folder / "other.gguf", formats="Q8_0", tied=False, seed=1),
        "gemma3": write_tiny(folder / "gemma3.gguf", "gemma3", formats="Q8_0", layers=6, window=70),
    }


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A disk cache of one's own beside everybody's compiled kernels; and no thread is left."""
    monkeypatch.setattr(keeping, "folder", lambda: tmp_path / "cache")
    yield tmp_path / "cache"
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("edgellm")]


def load(path: Path, **options: Any) -> LLM:
    return LLM(loader.load_model(path, EngineConfig(**{**SMALL, "disk_cache": 1 << 28, **options})))


def ask(llm: LLM, prompt: list[int]) -> tuple[list[int], int, NDArray[np.float32]]:
    """-> the answer, how much of the prompt was reused, and the logits that decided its first token."""
    rows: list[NDArray[np.float32]] = []
    engine = llm.loaded.engine
    forward: Callable[..., NDArray[np.float32]] = engine.runner.forward

    def watched(*args: Any) -> NDArray[np.float32]:
        logits = forward(*args)
        rows.extend(logits.copy())
        return logits

    sequence = Sequence(prompt, GREEDY)
    engine.runner.forward = watched  # type: ignore[method-assign]
    try:
        llm._shared.add(sequence)
        llm._shared.wait(sequence, 7)
    finally:
        del engine.runner.forward
    return sequence.output_ids, sequence.num_reused, np.array(rows)


def cold(path: Path, prompt: list[int], **options: Any) -> tuple[list[int], NDArray[np.float32]]:
    with load(path, disk_cache=0, **options) as llm:
        ids, reused, logits = ask(llm, prompt)
        assert reused == 0
        return ids, logits


@pytest.mark.parametrize("name", ["llama", "gemma3"])
def test_a_restart_goes_on_where_the_last_process_ended(models: dict[str, Path], name: str) -> None:
    ids, logits = cold(models[name], PROMPT)
    with load(models[name]) as llm:
        assert ask(llm, PROMPT)[0] == ids
    with load(models[name], threads=1, weights="raw", prefill_chunk=50, max_context=512) as llm:
        again, reused, found = ask(llm, PROMPT)
        assert reused == len(PROMPT) - 1 and again == ids
        assert (found == logits).all(), "not the same bits"
        longer = [*PROMPT, *ids, *PROMPT[:20]]
        expected, logits = cold(models[name], longer)
        answer, reused, found = ask(llm, longer)
        assert reused >= len(PROMPT) and answer == expected and (found == logits).all()


CHANGES: list[dict[str, Any]] = [
    {"path": "other"},
    {"precise": True},
    {"window": 100, "sinks": 4, "max_context": None},
]


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_another_model_or_other_settings_share_nothing(
    models: dict[str, Path], tmp_path: Path, change: dict[str, Any]
) -> None:
    with load(models["llama"]) as llm:
        ask(llm, PROMPT)
        llm.save_state(tmp_path / "chat.state")
    options = dict(change)
    with load(models[options.pop("path", "llama")], **options) as llm:
        with pytest.raises(StateError, match="was saved with other settings"):
            llm.load_state(tmp_path / "chat.state")
        assert ask(llm, PROMPT)[1] == 0


def test_a_copy_of_the_model_shares(models: dict[str, Path], tmp_path: Path) -> None:
    with load(models["llama"]) as llm:
        ids = ask(llm, PROMPT)[0]
    copy = tmp_path / "copy.gguf"
    copy.write_bytes(models["llama"].read_bytes())
    with load(copy) as llm:
        assert ask(llm, PROMPT)[:2] == (ids, len(PROMPT) - 1)


def test_damage_on_disk_costs_time_only(models: dict[str, Path], folder: Path) -> None:
    ids, logits = cold(models["llama"], PROMPT)
    with load(models["llama"]) as llm:
        ask(llm, PROMPT)
    paths = sorted(folder.rglob("*.kv"))
    for path in paths:
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    with load(models["llama"]) as llm:
        answer, reused, found = ask(llm, PROMPT)
        assert reused == 0 and answer == ids and (found == logits).all()
    with load(models["llama"]) as llm:
        assert ask(llm, PROMPT)[1] == len(PROMPT) - 1, "what was damaged was written again"


def test_the_limit_is_kept(models: dict[str, Path], folder: Path) -> None:
    with load(models["llama"]) as llm:
        block = llm.loaded.cache.block_bytes_of_group[0]
        ask(llm, PROMPT)
    limit = 8 * (block + 8192)
    with load(models["llama"], disk_cache=limit) as llm:
        for first in range(1, 9):
            ask(llm, [first, *PROMPT])
    assert 0 < sum(path.stat().st_size for path in folder.rglob("*.kv")) <= limit


def test_a_folder_that_cannot_be_made_is_a_warning(models: dict[str, Path], folder: Path) -> None:
    folder.write_text("not a folder")
    llm = load(models["llama"])
    ids, _ = cold(models["llama"], PROMPT)
    with pytest.warns(RuntimeWarning, match="no longer kept"):
        assert ask(llm, PROMPT)[0] == ids
        llm.close()


# ---- saved states ----
@pytest.mark.parametrize("name", ["llama", "gemma3"])
def test_a_saved_conversation_goes_on(models: dict[str, Path], tmp_path: Path, name: str) -> None:
    path = tmp_path / "chat.state"
    with load(models[name], disk_cache=0) as llm:
        ids = ask(llm, PROMPT)[0]
        ask(llm, [9, *PROMPT[:20]])
        saved = llm.save_state(path)
        assert saved == len(PROMPT) + 7 + 21 + 7  # the last token of an answer is in nobody's cache yet
    turn = [*PROMPT, *ids, 5, 6, 7]
    expected, logits = cold(models[name], turn)
    with load(models[name], disk_cache=0, threads=1, weights="raw") as llm:
        assert llm.load_state(path) == saved
        answer, reused, found = ask(llm, turn)
        assert reused == len(PROMPT) + 7 and answer == expected and (found == logits).all()
        assert llm.load_state(path) >= saved, "loading again does no harm"


def test_memory_that_holds_less_than_the_state_keeps_what_was_used_last(
    models: dict[str, Path], tmp_path: Path
) -> None:
    path = tmp_path / "chat.state"
    prompts = [[first, *PROMPT] for first in range(1, 7)]
    with load(models["llama"], disk_cache=0, cache_memory=1 << 25) as llm:
        for prompt in prompts:
            ask(llm, prompt)
        saved = llm.save_state(path)
        block = llm.loaded.cache.block_bytes_of_group[0]
    with load(models["llama"], disk_cache=0, cache_memory=9 * block) as llm:
        assert 0 < llm.load_state(path) < saved
        assert ask(llm, prompts[-1])[1] == len(prompts[-1]) - 1
        assert ask(llm, prompts[0])[1] == 0


def test_while_others_answer(models: dict[str, Path], tmp_path: Path) -> None:
    """Saving and loading come between the steps of an answer that another thread makes, and change nothing of it."""
    path = tmp_path / "chat.state"
    params = {"max_tokens": 90, "temperature": 0.0, "ignore_eos": True}
    with load(models["llama"], disk_cache=0, max_sequences=2) as llm:
        expected = llm.generate(PROMPT[:100], **params).token_ids
        found: list[list[int]] = []
        thread = threading.Thread(target=lambda: found.append(llm.generate(PROMPT[:100], **params).token_ids))
        thread.start()
        while thread.is_alive():
            llm.save_state(path)
            assert llm.load_state(path) > 0
        thread.join()
        assert found == [expected]


def test_errors_of_states(models: dict[str, Path], tmp_path: Path) -> None:
    path = tmp_path / "chat.state"
    with load(models["llama"], disk_cache=0) as llm:
        assert llm.save_state(path) == 0 and llm.load_state(path) == 0
        ask(llm, PROMPT)
        llm.save_state(path)
        path.write_bytes(path.read_bytes()[:-100])
        with pytest.raises(StateError, match="damaged"):
            llm.load_state(path)
        with pytest.raises(StateError, match="none.state"):
            llm.load_state(tmp_path / "none.state")
        with pytest.raises(ResourceError, match="cannot be written"):
            llm.save_state(tmp_path / "none" / "chat.state")
    for method in (llm.save_state, llm.load_state):
        with pytest.raises(EdgeLLMError, match="closed"):
            method(path)


def test_a_model_file_that_changed_has_no_state(models: dict[str, Path], tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(models["llama"].read_bytes())
    with load(path, disk_cache=0) as llm:
        path.unlink()
        path.write_bytes(models["other"].read_bytes())
        with pytest.raises(StateError, match="has changed since it was loaded"):
            llm.save_state(tmp_path / "chat.state")
