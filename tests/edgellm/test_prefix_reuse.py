"""What was computed for earlier sequences is used again, on real kernels: the same bits as cold. Cases O17, O25."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from tiny_models import write_tiny

from edgellm import LLM
from edgellm.cache.memory import needed_bytes
from edgellm.config import EngineConfig
from edgellm.kernels.ops import Batch
from edgellm.loader import load_model
from edgellm.sequence import Sequence

MAX_CONTEXT = 512
ARCHES = ("llama", "gemma3")
GREEDY = {"temperature": 0.0, "ignore_eos": True}


@pytest.fixture(scope="module", params=ARCHES)
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """gemma3 has layers with a window of 8 beside one that sees all."""
    folder = tmp_path_factory.mktemp("tiny")
    return write_tiny(folder / "tiny.gguf", request.param, layers=7, formats="Q8_0", tied=False, context=4096, window=8)


class Watched:
    """A model, and every row of logits that its answers were chosen from."""

    def __init__(self, llm: LLM) -> None:
        self.llm = llm
        self.rows: list[NDArray[np.float32]] = []
        self.num_computed = 0
        backend, engine = llm.loaded.engine.runner.backend, llm.loaded.engine
        run, add = backend.run, engine._scheduler.add

        def watched_run(batch: Batch) -> NDArray[np.float32]:
            rows = run(batch)
            self.rows += list(rows.copy())
            self.num_computed += len(batch.token_ids)
            return rows

        def watched_add(sequence: Sequence) -> None:
            if not sequence.keep_logits:
                self.sequence = sequence
            add(sequence)

        backend.run = watched_run  # type: ignore[method-assign]
        engine._scheduler.add = watched_add  # type: ignore[method-assign]

    def check(self, prompt: list[int], reused: int | None, max_tokens: int = 3) -> None:
        """An answer to `prompt` is, bit for bit, what the model says when it computes every token."""
        self.rows.clear()
        self.num_computed = 0
        done = self.llm.generate(prompt, max_tokens=max_tokens, **GREEDY)  # type: ignore[arg-type]
        assert reused is None or self.sequence.num_reused == reused
        assert self.num_computed == len(prompt) - self.sequence.num_reused + max_tokens - 1
        assert done.prompt_token_ids == prompt and done.timings.prefill_tokens == len(prompt)
        hot = np.array(self.rows)
        cold = self.llm.logits(prompt + done.token_ids[:-1])
        assert hot.tobytes() == cold[len(prompt) - 1 :].tobytes()
        allowed = np.array([i for i in range(cold.shape[1]) if i not in self.llm.eog_ids])
        assert done.token_ids == allowed[cold[len(prompt) - 1 :][:, allowed].argmax(axis=1)].tolist()


def load(path: Path, prefill_chunk: int = 32, max_sequences: int = 1, memory: int = 16_000_000) -> LLM:
    """With room for everything that a test leaves behind, unless it says otherwise. The window's ring has few columns."""
    # Computed tokens are counted here: guesses would be among them.
    config = EngineConfig(2, MAX_CONTEXT, prefill_chunk, max_sequences, cache_memory=memory, spec="off")
    return LLM(load_model(path, config))


@pytest.fixture
def model(path: Path) -> Iterator[Watched]:
    with load(path) as llm:
        yield Watched(llm)


def make_prompt(length: int, seed: int = 0) -> list[int]:
    return [int(i) for i in np.random.default_rng(seed).integers(5, 120, length)]


@pytest.mark.parametrize("length", [1, 2, 31, 32, 33, 63, 64, 65, 200])
def test_o17_a_hit_changes_nothing(model: Watched, length: int) -> None:
    prompt, other = make_prompt(length), make_prompt(length, 1)
    model.check(prompt, 0)
    model.check(prompt, length - 1)
    model.check([*prompt, 3], length)
    model.check(prompt[:-1] or [3], max(length - 2, 0))
    model.check(other, 0)
    model.check(prompt, length - 1)


@pytest.mark.parametrize("length", [1, 2, 31, 32, 33, 64])
def test_o17_an_answer_is_never_what_is_kept(model: Watched, length: int) -> None:
    prompt, answers = make_prompt(length), []
    for seed in (1, 2, 1):
        done = model.llm.generate(prompt, max_tokens=8, temperature=2.0, top_k=0, top_p=1.0, seed=seed, ignore_eos=True)
        answers.append(done.token_ids)
    assert answers[0] == answers[2] != answers[1]
    assert model.sequence.num_reused == length - 1
    model.llm.loaded.engine.runner.cache.tree.clear()
    done = model.llm.generate(prompt, max_tokens=8, temperature=2.0, top_k=0, top_p=1.0, seed=1, ignore_eos=True)
    assert done.token_ids == answers[0] and model.sequence.num_reused == 0


@pytest.mark.parametrize("chunk", [1, 3, 8, 20])
@pytest.mark.parametrize("length", [7, 8, 9, 15, 16, 17, 20])
def test_o25_a_window_and_its_edges(path: Path, chunk: int, length: int) -> None:
    first, second = make_prompt(length), make_prompt(5) + make_prompt(length, 1)[5:]
    with load(path, chunk) as llm:
        model = Watched(llm)
        model.check(first, 0, 6)
        model.check(second, 5, 6)
        model.check(first, length - 1, 6)


def test_a_conversation_and_a_second_try(model: Watched) -> None:
    history = make_prompt(20)
    for turn in range(4):
        model.check(history, None, 9)
        assert model.sequence.num_reused == (len(history) - 6 if turn else 0)  # all but what was said last
        model.check(history, len(history) - 1, 9)
        history = [*history, *model.sequence.output_ids[:-1], *make_prompt(6, turn + 1)]
        assert len(history) < 90


def test_a_cancelled_answer_is_of_use_too(model: Watched) -> None:
    prompt = make_prompt(30)
    with model.llm.stream(prompt, max_tokens=20, **GREEDY) as stream:  # type: ignore[arg-type]
        for _ in range(5):
            next(stream)
    said = model.sequence.output_ids
    assert len(said) >= 5
    model.check([*prompt, *said, 7], len(prompt) + len(said) - 1)


def test_logits_of_all_positions_are_computed_and_kept(model: Watched) -> None:
    prompt = make_prompt(40)
    first = model.llm.logits(prompt)
    assert model.llm.logits(prompt).tobytes() == first.tobytes() and model.num_computed == 80
    model.check(prompt, 39)


def test_a_window_that_has_moved_on_is_computed_again(path: Path) -> None:
    """Its blocks at the end of each turn are kept, those between are not."""
    prompt, answer = make_prompt(150), make_prompt(200, 1)
    has_window = "gemma3" in path.read_bytes()[:100].decode("latin-1")
    with load(path, 8) as llm:
        model = Watched(llm)
        model.check(prompt, 0)
        model.check(prompt + answer, 150)
        model.check([*prompt, *answer[:100], 7], 150 if has_window else 250)
        model.check([*prompt, *answer[:100], 8], 250)
        model.check(prompt[:60], 0 if has_window else 59)
        model.check(prompt + answer, 349)


def test_sequences_that_take_turns_in_too_little_memory_answer_as_they_do_alone(path: Path) -> None:
    prompts = [make_prompt(300), make_prompt(150) + make_prompt(140, 1), make_prompt(20, 2)]
    options = {"max_tokens": 100, **GREEDY}
    with load(path) as llm:
        alone = [llm.generate(prompt, **options).token_ids for prompt in prompts]  # type: ignore[arg-type]
        one = needed_bytes(llm.loaded.cache_layers, MAX_CONTEXT, 1, 32)
    assert all(len(set(ids)) > 9 for ids in alone), "an answer that says one thing only would prove nothing"
    pauses = 0
    pause = Sequence.pause

    def counted(sequence: Sequence) -> None:
        nonlocal pauses
        pauses += 1
        pause(sequence)

    with load(path, 32, 3, one) as llm, pytest.MonkeyPatch.context() as patch:
        patch.setattr(Sequence, "pause", counted)
        streams = [llm.stream(prompt, **options) for prompt in prompts]  # type: ignore[arg-type]
        for stream in streams:
            for _ in stream:
                pass
        assert [stream.completion.token_ids for stream in streams if stream.completion] == alone
        assert pauses > 0
        assert llm.loaded.engine.runner.cache.num_free_slots == 3


def test_a_batch_of_any_lengths_gives_each_what_it_gets_alone(path: Path) -> None:
    shared = make_prompt(70)
    prompts = [
        [*shared[:cut], *make_prompt(extra, cut)] for cut, extra in ((0, 1), (64, 2), (70, 90), (33, 40), (70, 1))
    ]
    with load(path) as llm:
        alone = [llm.generate(prompt, max_tokens=20, **GREEDY).token_ids for prompt in prompts]  # type: ignore[arg-type]
    with load(path, 20, 3) as llm:
        for _ in range(2):  # cold, then hot
            streams = [llm.stream(prompt, max_tokens=20, **GREEDY) for prompt in prompts]  # type: ignore[arg-type]
            for stream in reversed(streams):
                for _ in stream:
                    pass
            assert [stream.completion.token_ids for stream in streams if stream.completion] == alone


def test_without_prefix_caching_every_prompt_is_read_anew_and_says_the_same(path: Path) -> None:
    prompt = make_prompt(100)
    with load(path) as llm:
        expected = [one.token_ids for one in llm.generate_many(prompt, 3, max_tokens=4, seed=5)]
    config = EngineConfig(2, MAX_CONTEXT, 32, 3, prefix_caching=False, spec="off")
    with LLM(load_model(path, config)) as llm:
        for _ in range(2):
            answers = llm.generate_many(prompt, 3, max_tokens=4, seed=5)
            assert [one.token_ids for one in answers] == expected
            assert [one.timings.reused_tokens for one in answers] == [0, 0, 0]
        assert not list(llm.loaded.cache.tree)
