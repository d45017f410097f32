"""What happens at the end of the context, on real kernels and tiny models: refused, cut, or a window without an end.

Case O16 through the Python interface; `cli/test_chat.py` has the conversation that no longer fits.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from tiny_models import write_tiny

from edgellm import LLM
from edgellm.config import EngineConfig
from edgellm.errors import ContextError
from edgellm.loader import settle

GREEDY: dict[str, Any] = {"temperature": 0.0, "ignore_eos": True}


@pytest.fixture(scope="module", params=["llama", "gemma3"])
def tiny(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Gemma's own window is 8, in all layers but the last."""
    path = tmp_path_factory.mktemp("tiny") / "tiny.gguf"
    return write_tiny(path, request.param, layers=6, head_dim=32, formats="Q8_0", context=4096, vocab=300)


@pytest.fixture
def llm(tiny: Path) -> Iterator[LLM]:
    with LLM.load(tiny, threads=2, max_context=256, prefill_chunk=64) as llm:
        yield llm


def make_ids(count: int) -> list[int]:
    return [int(i) for i in np.random.default_rng(count).integers(0, 250, count)]


@pytest.mark.parametrize("size", [256, 257, 5000])
def test_o16_a_prompt_that_leaves_no_room_is_refused_before_any_work(size: int, llm: LLM) -> None:
    for call in (llm.generate, llm.stream):
        with pytest.raises(ContextError) as refused:
            call(make_ids(size))
        message = str(refused.value)
        assert f"the prompt has {size} tokens and max_context is 256" in message and "\n" not in message
        assert all(way in message for way in ("shorten the prompt", "--max-context", "--on-full window"))
    assert not llm.loaded.engine.has_work
    assert llm.generate(make_ids(10), max_tokens=3, **GREEDY).finish_reason == "length", "and it goes on"


def test_o16_a_full_context_ends_the_answer_with_length(llm: LLM) -> None:
    for size, options, count in ((255, {}, 1), (250, {"max_tokens": 100}, 6), (250, {"max_tokens": 6}, 6)):
        done = llm.generate(make_ids(size), **options, **GREEDY)
        assert (len(done.token_ids), done.finish_reason, done.num_dropped_tokens) == (count, "length", 0)
    assert llm.logits(make_ids(256)).shape == (256, 300)


def test_a_window_at_the_end_of_the_context_changes_nothing_before_it(llm: LLM, tiny: Path) -> None:
    ids = make_ids(256)
    wanted, answer = llm.logits(ids), llm.generate(ids[:200], max_tokens=56, **GREEDY)
    with LLM.load(tiny, threads=2, max_context=256, prefill_chunk=64, on_full="window") as endless:
        assert endless.max_context is None and endless.window == 256
        assert np.array_equal(endless.logits(ids), wanted)
        done = endless.generate(ids[:200], max_tokens=56, **GREEDY)
        assert (done.token_ids, done.num_dropped_tokens) == (answer.token_ids, 0)
        caches = [model.loaded.engine.runner.cache.nbytes for model in (llm, endless)]
        assert caches[1] <= caches[0] * (256 + 64 + 2 * 64) / 256, "the context, a chunk, and what blocks round up to"


def test_the_answer_goes_on_for_ever_and_every_drop_is_told(tiny: Path) -> None:
    ids, memory = make_ids(5000), []
    with LLM.load(tiny, threads=2, max_context=100, sinks=3, prefill_chunk=64, on_full="window") as llm:
        for size, count, dropped in ((90, 13, 0), (90, 14, 0), (90, 15, 1), (5000, 1, 5000 - 103), (90, 3000, 2986)):
            done = llm.generate(ids[:size], max_tokens=count, **GREEDY)
            assert (len(done.token_ids), done.finish_reason) == (count, "length")
            assert done.num_dropped_tokens == dropped
            memory.append(psutil.Process().memory_info().rss)
        whole = llm.generate(ids[:5000], max_tokens=20, **GREEDY).token_ids
        assert llm.generate(ids[:5000] + whole[:7], max_tokens=13, **GREEDY).token_ids == whole[7:]
    assert memory[-1] < memory[1] + 8e6


@pytest.mark.parametrize(
    ("window", "sinks", "types"),
    [(70, 5, ("f16", "f16")), (64, 0, ("bf16", "q8_0")), (1, 64, ("q8_0", "e4m3")), (130, 4, ("q4_h", "q4_h"))],
)
@pytest.mark.filterwarnings("ignore:--cache-type")
def test_bits_of_a_window_do_not_depend_on_chunks_and_threads(
    window: int, sinks: int, types: tuple[str, str], tiny: Path
) -> None:
    ids, found = make_ids(400), []
    options: dict[str, Any] = {"cache_type_k": types[0], "cache_type_v": types[1]}
    for chunk, threads in ((512, 1), (64, 2), (7, 3)):
        with LLM.load(tiny, threads=threads, prefill_chunk=chunk, window=window, sinks=sinks, **options) as llm:
            found.append(llm.logits(ids))
            assert np.array_equal(llm.logits(ids[:90]), found[0][:90])
    assert np.array_equal(found[0], found[1]) and np.array_equal(found[0], found[2])
    with LLM.load(tiny, threads=2, max_context=400, **options) as llm:
        whole = llm.logits(ids)
    assert np.array_equal(whole[:window], found[0][:window])
    assert not np.allclose(whole[window + sinks + 6 :], found[0][window + sinks + 6 :], atol=1e-3)


def test_a_window_that_no_layer_reaches_beyond_is_said_to_change_nothing(tmp_path: Path) -> None:
    path = write_tiny(tmp_path / "m.gguf", "gemma3", layers=4, vocab=300)  # every sixth layer sees all: none here
    with pytest.warns(RuntimeWarning, match="window 9 changes nothing: no layer of this model sees more than 8 tokens"):
        LLM.load(path, threads=1, window=9).close()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        LLM.load(path, threads=1, window=7).close()
        LLM.load(path, threads=1, max_context=9, on_full="window").close()


def test_what_is_left_open_is_settled_once() -> None:
    for trained, context in ((131072, 4096), (100, 100), (None, 4096)):
        config = EngineConfig(on_full="window")
        assert settle(config, trained) == EngineConfig(on_full="window", window=context)
        assert settle(settle(config, trained), trained) == settle(config, trained)
        assert settle(EngineConfig(), trained).max_context == context
        assert settle(EngineConfig(window=9, prefill_chunk=64), trained) == EngineConfig(window=9, prefill_chunk=64)
    assert settle(EngineConfig(max_context=10), None) == EngineConfig(max_context=10, prefill_chunk=10)
