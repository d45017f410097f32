"""LLM on a scripted model: text in, text out, ends, cancelling, threads, errors. Cases O01, O02, O03, O04, O16."""

from __future__ import annotations

import dataclasses
import gc
import json
import math
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scripted_llm import BOS, EOG, EOT, FREE, PIECES, FakeLoaded, FakeTokenizer, follow, free_slots, make_llm
from scripted_model import expected_logits, make_engine

import edgellm
from edgellm.completion import Completion
from edgellm.config import EngineConfig, SamplingParams
from edgellm.errors import ContextError, EdgeLLMError, OptionError
from edgellm.llm import LLM


@pytest.fixture
def llm() -> Iterator[LLM]:
    llm, _ = make_llm()
    with llm:
        yield llm


def test_a_prompt_is_text_or_ids_and_a_completion_tells_all(llm: LLM) -> None:
    done = llm.generate("The quick", max_tokens=7, temperature=0, ignore_eos=True)
    assert done.prompt_token_ids == [BOS, 5, 6]
    assert len(done.token_ids) == 7 and done.finish_reason == "length"
    assert done.text == b"".join(PIECES[i] for i in done.token_ids).decode("utf-8", "replace")
    for ids in ([BOS, 5, 6], (BOS, 5, 6), np.array([BOS, 5, 6], np.uint32), iter([BOS, 5, 6])):
        again = llm.generate(ids, max_tokens=7, temperature=0, ignore_eos=True)
        assert dataclasses.replace(again, timings=done.timings) == done


@pytest.mark.parametrize("stop", [(), ("a", "1"), ("own fox",)])
def test_joined_stream_equals_the_text(llm: LLM, stop: tuple[str, ...]) -> None:
    for seed in range(10):
        done = llm.generate("a", FREE, max_tokens=40, seed=seed, stop=stop)
        stream = llm.stream("a", FREE, max_tokens=40, seed=seed, stop=stop)
        pieces = list(stream)
        assert "" not in pieces and "".join(pieces) == done.text
        assert isinstance(stream.completion, Completion)
        assert dataclasses.replace(stream.completion, timings=done.timings) == done
        assert list(stream) == []


def test_characters_are_whole_and_a_cut_tail_is_one_replacement() -> None:
    llm, backend = make_llm()
    follow(backend, 0, 12, 13, 14, 16, 17, 15, EOG)
    assert list(llm.stream("a")) == ["\U0001f638", "A", "\ufffd", "B", "\ufffd"]
    assert llm.generate("a").text == "\U0001f638A\ufffdB\ufffd"


@pytest.mark.parametrize(
    ("ids", "stop", "text", "reason", "num_ids"),
    [
        ((5, 6, 7, 8, 9, 10), "own fox", " quick br", "stop", 4),
        ((11, 0, 4, 1, EOG), "\n<|endoftext|>", "a\nb", "stop", 4),
        ((11, 0, 1, 2), ("ab", "abc"), "", "stop", 2),
        ((11, 0, 2, 1, EOG), ("cx", "bx"), "acb", "stop", 4),
    ],
)
def test_stop_strings_span_tokens_and_never_show(
    ids: tuple[int, ...], stop: str | tuple[str, ...], text: str, reason: str, num_ids: int
) -> None:
    llm, backend = make_llm()
    follow(backend, *ids)
    stream = llm.stream([ids[0]], temperature=0, stop=stop)
    assert "".join(stream) == text
    for done in (stream.completion, llm.generate([ids[0]], temperature=0, stop=stop)):
        assert done is not None
        assert (done.text, done.finish_reason, len(done.token_ids)) == (text, reason, num_ids)
    assert free_slots(llm) == 3


def test_an_end_token_ends_and_is_not_in_the_text() -> None:
    llm, backend = make_llm()
    follow(backend, 0, 1, EOT, 2, EOG, 11, 11)
    done = llm.generate("a")
    assert (done.text, done.token_ids, done.finish_reason) == ("b", [1, EOT], "stop")
    done = llm.generate("a", ignore_eos=True, max_tokens=5)
    assert (done.token_ids[0], len(done.token_ids), done.finish_reason) == (1, 5, "length")
    assert not {EOT, EOG}.intersection(done.token_ids)
    assert llm.generate([1]).text == "" and list(llm.stream([1])) == []


def test_begin_token_exactly_as_the_model_wants() -> None:
    def prompt(text: str | list[int], bos_id: int | None, add_bos: bool) -> list[int]:
        llm, _ = make_llm(tokenizer=FakeTokenizer(bos_id, add_bos))
        return llm.generate(text, max_tokens=1).prompt_token_ids

    assert prompt("a", BOS, True) == [BOS, 0]
    assert prompt("a", BOS, False) == [0]
    assert prompt([0], BOS, True) == [0]
    assert prompt("", BOS, False) == prompt([], BOS, True) == prompt("", BOS, True) == [BOS]
    with pytest.raises(OptionError, match="empty"):
        prompt("", None, False)


def test_chat_goes_through_the_template(llm: LLM) -> None:
    messages = [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]
    done = llm.chat(messages, max_tokens=3, temperature=0, ignore_eos=True)
    assert done.prompt_token_ids == [BOS, 0, 3, 1]
    stream = llm.chat_stream(iter(messages), SamplingParams(temperature=0, max_tokens=3, ignore_eos=True))
    assert "".join(stream) == done.text


def test_tokenize_and_detokenize(llm: LLM) -> None:
    assert llm.tokenize("ab") == [0, 1]
    assert llm.tokenize("ab", special=True) == [BOS, 0, 1]
    assert llm.detokenize(np.array([0, 1])) == "ab"
    assert llm.detokenize([0, 1], special=True) == "ab!"
    for bad in (-1, 50):
        with pytest.raises(OptionError, match=f"{bad} is out of range"):
            llm.detokenize([0, bad])


def test_logits_of_all_positions() -> None:
    ids = [i % 47 for i in range(256)]
    llm, backend = make_llm(prefill_chunk=7)
    logits = llm.logits(np.array(ids))
    assert logits.dtype == np.float32 and logits.shape == (256, 50)
    assert (logits == np.array([expected_logits(ids[: i + 1], [None, 70]) for i in range(256)])).all()
    assert max(len(batch.token_ids) for batch in backend.batches) == 7
    with pytest.raises(ContextError, match="257 tokens"):
        llm.logits([*ids, 1])
    with pytest.raises(OptionError, match="empty"):
        llm.logits([])
    assert free_slots(llm) == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_token": 3, "temprature": 1}, "unknown option max_token, temprature; the options are max_tokens"),
        ({"temperature": -1}, "temperature"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"params": {"max_tokens": 3}}, "params must be SamplingParams, not dict"),
    ],
)
def test_bad_options_are_refused_at_once(llm: LLM, options: dict[str, Any], message: str) -> None:
    for call in (llm.generate, llm.stream):
        with pytest.raises(OptionError, match=message):
            call("a", **options)
    assert not llm.loaded.engine.has_work


@pytest.mark.parametrize("prompt", [[True], [1.0], ["a"], [None], b"a", 3, None, [50], [-1], [0, 10**30]])
def test_bad_prompts_are_refused_at_once(llm: LLM, prompt: Any) -> None:
    for call in (llm.generate, llm.stream):
        with pytest.raises(OptionError):
            call(prompt)
    assert not llm.loaded.engine.has_work


def test_a_prompt_that_leaves_no_room_is_refused_with_both_numbers(llm: LLM) -> None:
    for size in (256, 257, 5000):
        with pytest.raises(ContextError, match=f"{size} tokens.*256"):
            llm.stream([1] * size)
    assert len(llm.generate([1] * 255, FREE).token_ids) == 1
    assert llm.generate([1] * 250, FREE, max_tokens=100).finish_reason == "length"
    assert llm.generate("a", FREE).finish_reason == "length"


def test_a_stream_that_is_left_in_any_way_frees_its_place(llm: LLM) -> None:
    stream = llm.stream("a", FREE)
    first = next(stream)
    stream.close()
    assert free_slots(llm) == 3 and stream.completion is not None
    assert (stream.completion.text, stream.completion.finish_reason) == (first, "cancelled")
    with llm.stream("a", FREE) as stream:
        next(stream)
        assert free_slots(llm) == 2 or stream._sequence.is_finished
    assert free_slots(llm) == 3
    for _ in llm.stream("a", FREE):
        break
    stream = llm.stream("a", FREE)
    next(stream)
    del stream
    llm.stream("a", FREE)
    gc.collect()
    assert free_slots(llm) == 3 and not llm.loaded.engine.has_work


def test_unusable_logits_are_an_error_of_the_caller() -> None:
    llm, backend = make_llm()
    backend.poison = {0}
    with pytest.raises(EdgeLLMError, match="logit is nan"):
        llm.generate("a")
    assert free_slots(llm) == 3
    assert len(llm.generate("b", FREE, max_tokens=2).token_ids) == 2


def test_threads_generate_at_once() -> None:
    llm, _ = make_llm()
    prompts = ["a" * i for i in range(1, 7)]
    expected = [llm.generate(prompt, FREE, max_tokens=20).token_ids for prompt in prompts]
    found: dict[int, list[int]] = {}

    def ask(index: int) -> None:
        found[index] = llm.generate(prompts[index], FREE, max_tokens=20).token_ids

    threads = [threading.Thread(target=ask, args=(i,), daemon=True) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    assert [found.get(i) for i in range(6)] == expected


def test_timings() -> None:
    llm, _ = make_llm()
    done = llm.generate("The quick", FREE, max_tokens=5)
    timings = done.timings
    assert (timings.load_s, timings.prefill_tokens, timings.decode_tokens) == (1.5, 3, 4)
    assert timings.ttft_s > 0 and timings.prefill_tps > 0 and timings.decode_tps > 0
    names = ["load_s", "ttft_s", "prefill_tokens", "prefill_tps", "decode_tokens", "decode_tps", "reused_tokens"]
    names += ["queued_s", "draft_tokens", "accepted_tokens", "spec_speedup"]
    assert 0 <= timings.queued_s <= timings.ttft_s
    assert list(json.loads(json.dumps(timings.as_dict()))) == names
    one = llm.generate("a", FREE, max_tokens=1).timings
    assert (one.decode_tokens, one.decode_tps) == (0, 0.0)
    (stream := llm.stream("a")).close()
    assert stream.completion is not None
    assert stream.completion.timings.ttft_s == 0.0 and math.isfinite(stream.completion.timings.decode_tps)


def test_after_close_everything_says_so_and_closing_again_does_not() -> None:
    llm, backend = make_llm()
    stream = llm.stream("a", FREE)
    next(stream)
    llm.close()
    llm.close()
    assert backend.is_closed and llm.loaded.num_closed == 1  # type: ignore[attr-defined]
    for call in (
        lambda: llm.generate("a"),
        lambda: llm.stream([1]),
        lambda: llm.chat([{"role": "user", "content": "a"}]),
        lambda: llm.logits([1]),
    ):
        with pytest.raises(EdgeLLMError, match="this model is closed; load it again"):
            call()
    with pytest.raises(EdgeLLMError, match="closed before this answer was complete"):
        list(stream)


def test_a_forgotten_model_is_closed() -> None:
    llm, backend = make_llm()
    stream = llm.stream("a", FREE)
    next(stream)
    del llm
    gc.collect()
    assert not backend.is_closed, "a living stream keeps its model"
    next(stream)
    del stream
    gc.collect()
    assert backend.is_closed


def test_load_resolves_the_name_and_passes_everything_on(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []

    def progress(stage: str, done: int, total: int) -> None: ...

    def resolve(name: str, progress: object) -> Path:
        calls.append((name, progress))
        return Path("/resolved.gguf")

    def load_model(path: Path, config: EngineConfig, progress: object) -> FakeLoaded:
        calls.append((path, config, progress))
        return FakeLoaded(make_engine()[0], FakeTokenizer(), None)

    monkeypatch.setattr(edgellm, "hub", SimpleNamespace(resolve=resolve), raising=False)
    monkeypatch.setattr(edgellm, "loader", SimpleNamespace(load_model=load_model), raising=False)
    with LLM.load(
        Path("x.gguf"), threads=2, max_context=99, prefill_chunk=5, max_sequences=3, weights="raw", progress=progress
    ) as llm:
        assert llm.load_s == 1.5 and llm.max_context == 256
    assert calls == [("x.gguf", progress), (Path("/resolved.gguf"), EngineConfig(2, 99, 5, 3, "raw"), progress)]
    LLM.load().close()
    assert calls[2:] == [("smollm2", None), (Path("/resolved.gguf"), EngineConfig(), None)]
    with pytest.raises(OptionError, match="threads"):
        LLM.load(threads=0)
    assert len(calls) == 4, "options are checked before anything is fetched"
