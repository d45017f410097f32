"""n answers to one prompt: each is the one its seed gives, and the prompt is read once."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny_models import write_tiny

from edgellm import LLM, SamplingParams
from edgellm.errors import OptionError

PROMPT = [i % 90 for i in range(1, 151)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("many") / "m.gguf", context=256)


@pytest.mark.parametrize("max_sequences", [1, 2, 4])
def test_each_is_what_its_seed_gives_and_one_reads_the_prompt(model: Path, max_sequences: int) -> None:
    params = SamplingParams(max_tokens=12, temperature=2.0, top_k=0, seed=2**64 - 2, ignore_eos=True)
    with LLM.load(model, max_sequences=max_sequences) as llm:
        answers = llm.generate_many(PROMPT, 4, params, logprobs=1)
        reused = [answer.timings.reused_tokens for answer in answers]
        assert reused[0] == 0 and reused[1:] == [len(PROMPT) - 1] * 3
    with LLM.load(model, threads=1) as llm:
        for answer, seed in zip(answers, (2**64 - 2, 2**64 - 1, 0, 1), strict=True):
            alone = llm.generate(PROMPT, params, seed=seed)
            assert answer.token_ids == alone.token_ids and alone.logprobs is None
            assert answer.logprobs is not None and [x.token_id for x in answer.logprobs] == answer.token_ids
    assert len({tuple(answer.token_ids) for answer in answers}) == 4


def test_equal_prompts_at_once_are_read_once(model: Path) -> None:
    with LLM.load(model, max_sequences=2, prefill_chunk=32) as llm:
        streams = [llm.stream(PROMPT, max_tokens=4, seed=seed, ignore_eos=True) for seed in (1, 2)]
        for stream in streams:
            list(stream)
        assert [s.completion.timings.reused_tokens for s in streams if s.completion] == [0, len(PROMPT) - 1]


@pytest.mark.parametrize("n", [0, -1, True, 1.5, 10**9])
def test_how_many_is_checked(model: Path, n: int) -> None:
    with LLM.load(model) as llm, pytest.raises(OptionError, match="n must be"):
        llm.generate_many([1], n)


def test_a_bias_of_an_id_that_is_not_there(model: Path) -> None:
    with (
        LLM.load(model) as llm,
        pytest.raises(OptionError, match=f"token id 9999; this model's are 0 to {llm.vocab_size - 1}"),
    ):
        llm.generate([1], logit_bias={9999: 1.0})
