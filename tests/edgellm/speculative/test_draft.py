"""A small model guesses for a larger one: the same text, an exact rollback, a vocabulary that is compared, a fair cost.

The pair is synthetic: the target is the draft model with more layers, which add nothing, so the two agree (nearly always:
their 8-bit activations round alike) and the larger one takes longer.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_models import write_tiny

from edgellm import LLM, SamplingParams
from edgellm.errors import OptionError, UnsupportedError
from edgellm.speculative.cost import PROBE_EVERY
from edgellm.speculative.draft import DraftModel

PROMPT = list(range(20, 50))
SHAPE: dict[str, Any] = {
    "tied": False,
    "hidden": 64,
    "heads": 4,
    "kv_heads": 2,
    "ffn": 96,
    "vocab": 128,
    "context": 512,
}


def write_pair(folder: Path, arch: str = "llama") -> tuple[Path, Path]:
    """The target and the draft model."""
    draft = write_tiny(folder / "draft.gguf", arch, layers=2, **SHAPE)
    zeros = {}
    for layer in (2, 3, 4):
        zeros[f"blk.{layer}.attn_output.weight"] = np.zeros((64, 64), np.float32)
        zeros[f"blk.{layer}.ffn_down.weight"] = np.zeros((64, 96), np.float32)
        if arch == "gemma3":
            zeros[f"blk.{layer}.post_attention_norm.weight"] = np.zeros(64, np.float32)
            zeros[f"blk.{layer}.post_ffw_norm.weight"] = np.zeros(64, np.float32)
    return write_tiny(folder / "target.gguf", arch, layers=5, tensors=zeros, **SHAPE), draft


def load(path: Path, **options: Any) -> LLM:
    return LLM.load(path, threads=1, max_context=256, prefill_chunk=32, **options)


def always(llm: LLM) -> LLM:
    assert llm.loaded.engine.speculator is not None
    llm.loaded.engine.speculator._always = True
    return llm


PARAMS = {
    "greedy": SamplingParams(temperature=0, max_tokens=120, ignore_eos=True),
    "drawn": SamplingParams(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, seed=5, max_tokens=120, ignore_eos=True),
}


@pytest.mark.parametrize("arch", ["llama", "gemma3"])
@pytest.mark.parametrize("cache_type", ["i16", "q8_0"])
def test_the_same_text_sooner(tmp_path: Path, arch: str, cache_type: str) -> None:
    target, draft = write_pair(tmp_path, arch)
    types = {"cache_type_k": cache_type, "cache_type_v": cache_type}
    with load(target, spec="off", **types) as llm:
        plain = {name: llm.generate(PROMPT, params).token_ids for name, params in PARAMS.items()}
    with always(load(target, spec="draft", draft_model=draft, **types)) as llm:
        for name, params in PARAMS.items():
            done = llm.generate(PROMPT, params)
            assert done.token_ids == plain[name], name
            # Agreeing models draw the same ids from the same random numbers.
            assert done.timings.accepted_tokens >= 0.8 * done.timings.draft_tokens > 0, name


def test_a_draft_model_that_knows_nothing(tmp_path: Path) -> None:
    target, _ = write_pair(tmp_path)
    stranger = write_tiny(tmp_path / "stranger.gguf", layers=1, seed=9, **SHAPE)
    with load(target, spec="off") as llm:
        plain = [llm.generate(PROMPT[i:], PARAMS["drawn"]).token_ids for i in range(3)]
    with always(load(target, spec="draft", draft_model=stranger, max_sequences=2)) as llm:
        streams = [llm.stream(PROMPT[i:], PARAMS["drawn"]) for i in range(3)]
        for stream, expected in zip(streams, plain, strict=True):
            list(stream)
            assert stream.completion is not None and stream.completion.token_ids == expected
            assert stream.completion.timings.accepted_tokens < 0.5 * stream.completion.timings.draft_tokens


@pytest.mark.parametrize(("step_s", "pays"), [(0.1e-3, True), (3.9e-3, False)])
def test_drafting_where_it_pays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step_s: float, pays: bool) -> None:
    """Steps of 4 ms: ids that cost a fortieth of one each pay, ids that cost as much as one do not, however right."""
    target, draft = write_pair(tmp_path)
    monkeypatch.setattr(DraftModel, "_note", lambda self, seconds: setattr(self, "step_s", step_s))
    with load(target, spec="draft", draft_model=draft) as llm:
        speculator = llm.loaded.engine.speculator
        assert speculator is not None
        for _ in range(2):  # the first one is cold
            speculator.times.note(1, 4e-3)
        monkeypatch.setattr(speculator, "note_step", lambda rows, seconds: None)
        timings = llm.generate(PROMPT, PARAMS["greedy"]).timings
        if pays:
            assert timings.accepted_tokens > 80
        else:
            assert 0 < timings.draft_tokens <= 2 * (1 + 120 // PROBE_EVERY)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vocab": 120}, "120 tokens, the model has 128|token \\d+ is"),
        ({"tokenizer": "spm"}, "tokenizer.ggml.model is 'llama' there and 'gpt2' here"),
    ],
)
def test_another_vocabulary_is_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    target, _ = write_pair(tmp_path)
    other = write_tiny(tmp_path / "other.gguf", layers=1, **(SHAPE | change))
    with pytest.raises(UnsupportedError, match=message):
        load(target, draft_model=other)


def test_one_token_is_enough_to_refuse(tmp_path: Path) -> None:
    from tiny_vocabulary import make_bpe

    target, _ = write_pair(tmp_path)
    tokens = list(make_bpe(128)["tokenizer.ggml.tokens"])
    tokens[77] = "intruder"
    other = write_tiny(tmp_path / "other.gguf", layers=1, metadata={"tokenizer.ggml.tokens": tokens}, **SHAPE)
    with pytest.raises(UnsupportedError, match="token 77 is 'intruder' there and"):
        load(target, draft_model=other)


@pytest.mark.parametrize("most", [1, 3])
def test_no_more_is_guessed_at_once_than_allowed(tmp_path: Path, most: int) -> None:
    target, draft = write_pair(tmp_path, "llama")
    with always(load(target, spec="draft", draft_model=draft, max_draft=most)) as llm:
        steps = []
        run = llm.loaded.engine.runner.backend.run
        llm.loaded.engine.runner.backend.run = lambda batch: (steps.append(len(batch.token_ids)), run(batch))[1]  # type: ignore[method-assign]
        llm.generate(PROMPT, temperature=0.0, max_tokens=12, ignore_eos=True)
    assert max(steps[1:]) == most + 1


def test_options_that_contradict_each_other(tmp_path: Path) -> None:
    target, draft = write_pair(tmp_path)
    with pytest.raises(OptionError, match="spec draft needs a small model"):
        load(target, spec="draft")
    with pytest.raises(OptionError, match="does not use a draft model"):
        load(target, spec="off", draft_model=draft)
    with pytest.raises(OptionError, match="spec must be one of auto, off, ngram, draft, not 'on'"):
        load(target, spec="on")
