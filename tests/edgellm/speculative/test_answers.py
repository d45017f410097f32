"""Answers of real kernels with and without guesses: text, ids, logprobs, and where everything ends.

The tiny model's output is tied to its input, so it repeats itself, and n-grams guess well.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tiny_models import write_tiny

from edgellm import LLM, Completion

PROMPT = "the cat and the dog and the cat and the"
SAMPLINGS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0.0},
    "drawn": {"temperature": 0.7, "seed": 3},
    "penalised": {"temperature": 0.9, "seed": 4, "repeat_penalty": 1.2, "presence_penalty": 0.3, "dry_multiplier": 0.5},
    "mirostat": {"temperature": 1.0, "seed": 5, "mirostat": 2, "mirostat_tau": 3.0},
    "biased": {"temperature": 0.5, "seed": 6, "logit_bias": {60: 4.0, 61: -100.0}, "logprobs": 5},
    "greedy with logprobs": {"temperature": 0.0, "logprobs": 20},
}


def load(path: Path, spec: str, **options: Any) -> LLM:
    settings: dict[str, Any] = {"threads": 2, "prefill_chunk": 32, **options}
    if "window" not in settings:
        settings["max_context"] = 400
    llm = LLM.load(path, spec=spec, **settings)
    if spec != "off":
        assert llm.loaded.engine.speculator is not None
        llm.loaded.engine.speculator._always = True
    return llm


def facts(done: Completion) -> tuple[Any, ...]:
    """All of an answer that is not time."""
    return done.text, done.token_ids, done.finish_reason, done.logprobs, done.num_dropped_tokens


def compare(path: Path, requests: list[dict[str, Any]], **options: Any) -> int:
    """Ask twice, with and without guesses. -> how many guesses were right."""
    with load(path, "off", **options) as llm:
        plain = [facts(llm.generate(PROMPT, **request)) for request in requests]
    with load(path, "ngram", **options) as llm:
        guessed = [llm.generate(PROMPT, **request) for request in requests]
    assert [facts(done) for done in guessed] == plain
    return sum(done.timings.accepted_tokens for done in guessed)


@pytest.mark.parametrize(
    ("arch", "options"),
    [
        ("llama", {}),
        ("gemma3", {"cache_type_k": "q8_0", "cache_type_v": "q4_h"}),
        ("llama", {"window": 40, "sinks": 4}),
        ("gemma3", {"precise": True}),
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore:--cache-type", "ignore:window")
def test_every_sampler_gives_the_same_answer(tmp_path: Path, arch: str, options: dict[str, Any]) -> None:
    path = write_tiny(tmp_path / "m.gguf", arch, formats="Q8_0", context=512)
    requests = [{"max_tokens": 60, "ignore_eos": True, **sampling} for sampling in SAMPLINGS.values()]
    assert compare(path, requests, **options) > 50


def test_stop_strings_and_banned_texts_inside_a_guess(tmp_path: Path) -> None:
    path = write_tiny(tmp_path / "m.gguf", formats="Q8_0", context=512)
    with load(path, "off") as llm:
        text = llm.generate(PROMPT, max_tokens=60, temperature=0, ignore_eos=True).text
    ends = [{"stop": [text[at : at + length]]} for at, length in ((5, 1), (9, 3), (20, 7), (33, 2))]
    bans = [{"banned": [text[at : at + length]]} for at, length in ((4, 2), (12, 5))]
    requests = [{"max_tokens": 60, "temperature": 0, "ignore_eos": True, **more} for more in (*ends, *bans)]
    requests += [{"max_tokens": count, "temperature": 0, "ignore_eos": True} for count in range(1, 20)]
    assert compare(path, requests) > 50


def test_turns_that_share_a_beginning(tmp_path: Path) -> None:
    """A guess that was taken back is not what the next question finds in the cache."""
    path = write_tiny(tmp_path / "m.gguf", formats="Q8_0", context=512)
    texts: dict[str, list[list[int]]] = {}
    for spec in ("off", "ngram"):
        with load(path, spec) as llm:
            ids = llm.tokenize(PROMPT)
            texts[spec] = []
            for turn in range(5):
                done = llm.generate(ids, max_tokens=20, temperature=0.8, seed=turn, ignore_eos=True)
                ids = [*ids, *done.token_ids, *llm.tokenize(" and the cat")]
                texts[spec].append(done.token_ids)
    assert texts["off"] == texts["ngram"]


def test_several_at_once(tmp_path: Path) -> None:
    path = write_tiny(tmp_path / "m.gguf", formats="Q8_0", context=512)
    requests = [{"max_tokens": 40 + i, "seed": i, "temperature": 0.4 * (i % 3), "ignore_eos": True} for i in range(6)]
    with load(path, "off") as llm:
        plain = [llm.generate(PROMPT, **request).token_ids for request in requests]
    with load(path, "ngram", max_sequences=3) as llm:
        streams = [llm.stream(PROMPT, **request) for request in requests]
        for stream, expected in zip(streams, plain, strict=True):
            list(stream)
            assert stream.completion is not None and stream.completion.token_ids == expected
