"""Guesses change the time, never the text: every kind of guesser against plain decoding, on the scripted engine.

The scripted model's answer depends on every id in reach, read through the block tables, so a place that was not taken back
exactly shows.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from collections.abc import Sequence as ListOf
from typing import Any

import pytest
from scripted_model import STATE, VOCAB_SIZE, make_engine

from edgellm.config import SamplingParams
from edgellm.engine import Engine
from edgellm.sequence import Sequence
from edgellm.speculative import NgramProposer, Speculator
from edgellm.speculative.proposer import Guess

WINDOWS: list[tuple[int | None, ...]] = [(None,), (None, 8), (24,), (None, STATE), (24, STATE), (STATE,)]
PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]


class Oracle:
    """Guesses the ids of a known text, each one right, wrong, or either at random."""

    step_s = None

    def __init__(self, text: ListOf[int], wrong: Callable[[], bool], length: Callable[[], int]) -> None:
        self._text, self._wrong, self._length = list(text), wrong, length

    def propose(self, token_ids: ListOf[int], max_tokens: int) -> Guess:
        start = len(token_ids)
        right = self._text[start : start + min(max_tokens, self._length())]
        return Guess([(i + 1) % VOCAB_SIZE if self._wrong() else i for i in right], 1)

    def close(self) -> None:
        pass


def run(engine: Engine, sequences: ListOf[Sequence], limit: int = 3000) -> None:
    for sequence in sequences:
        engine.add(sequence)
    for _ in range(limit):
        if not engine.has_work:
            return
        engine.step()
    raise AssertionError("the engine does not end")


def answer(params: SamplingParams, speculator: Speculator | None = None, **options: Any) -> tuple[Sequence, int]:
    """The finished sequence and how many steps it took."""
    engine, backend = make_engine(speculator=speculator, **options)
    sequence = Sequence(PROMPT, params)
    run(engine, [sequence])
    assert sequence.error is None
    steps = len(backend.batches)
    engine.close()
    return sequence, steps


def oracles(text: ListOf[int]) -> dict[str, Callable[[], Oracle]]:
    rng = random.Random(5)
    return {
        "right": lambda: Oracle(text, lambda: False, lambda: 8),
        "wrong": lambda: Oracle(text, lambda: True, lambda: 8),
        "random": lambda: Oracle(text, lambda: rng.random() < 0.3, lambda: rng.randrange(9)),
    }


PARAMS = {
    "greedy": SamplingParams(temperature=0, max_tokens=70),
    "drawn": SamplingParams(temperature=1.0, seed=7, max_tokens=70),
    "penalties": SamplingParams(temperature=0.9, seed=3, max_tokens=70, repeat_penalty=1.3, frequency_penalty=0.2),
}


@pytest.mark.parametrize("windows", WINDOWS, ids=str)
@pytest.mark.parametrize("name", PARAMS)
@pytest.mark.parametrize("kind", ["right", "wrong", "random", "ngram"])
def test_the_same_text(windows: tuple[int | None, ...], name: str, kind: str) -> None:
    params = PARAMS[name]
    plain, plain_steps = answer(params, windows=windows)
    make = NgramProposer if kind == "ngram" else oracles(plain.token_ids)[kind]
    guessed, steps = answer(params, Speculator(lambda sequence: [make()], always=True), windows=windows)
    assert guessed.token_ids == plain.token_ids
    assert guessed.finish_reason == plain.finish_reason == "length"
    assert 0 <= guessed.num_accepted <= guessed.num_drafted
    if kind == "right":
        assert steps < plain_steps / 5 and guessed.num_accepted == guessed.num_drafted > 0
    if kind == "wrong":
        assert steps == plain_steps and guessed.num_accepted == 0 < guessed.num_drafted


@pytest.mark.parametrize("max_tokens", [1, 2, 3, 8, 9, 10, 17])
def test_max_tokens_inside_a_guess(max_tokens: int) -> None:
    plain, _ = answer(SamplingParams(temperature=0, max_tokens=64))
    make = oracles(plain.token_ids)["right"]
    params = SamplingParams(temperature=0, max_tokens=max_tokens)
    guessed, _ = answer(params, Speculator(lambda sequence: [make()], always=True))
    assert guessed.output_ids == plain.output_ids[:max_tokens]


@pytest.mark.parametrize("place", [0, 1, 5, 11])
def test_the_end_inside_a_guess(place: int) -> None:
    params = SamplingParams(temperature=0, max_tokens=64)
    text = answer(params)[0].token_ids
    end = text[len(PROMPT) + place]
    plain, _ = answer(params, eog_ids=[end])
    guessed, _ = answer(params, Speculator(lambda s: [oracles(text)["right"]()], always=True), eog_ids=[end])
    assert guessed.output_ids == plain.output_ids
    assert guessed.output_ids[-1] == end and guessed.output_ids.count(end) == 1 and guessed.finish_reason == "stop"


def test_the_context_inside_a_guess() -> None:
    params = SamplingParams(temperature=0)
    plain, _ = answer(params, max_context=40)
    text = plain.token_ids + [0] * 20
    guessed, _ = answer(params, Speculator(lambda s: [oracles(text)["right"]()], always=True), max_context=40)
    assert guessed.token_ids == plain.token_ids and guessed.finish_reason == "length"


@pytest.mark.parametrize("prefill_chunk", [1, 2, 3, 16])
@pytest.mark.parametrize("windows", WINDOWS, ids=str)
def test_small_chunks_bound_the_guess(prefill_chunk: int, windows: tuple[int | None, ...]) -> None:
    params = PARAMS["greedy"]
    plain, _ = answer(params, windows=windows)
    make = oracles(plain.token_ids)["random"]
    speculator = Speculator(lambda sequence: [make()], always=True)
    guessed, _ = answer(params, speculator, windows=windows, prefill_chunk=prefill_chunk)
    assert guessed.token_ids == plain.token_ids


@pytest.mark.parametrize("memory", [None, 1.6])
@pytest.mark.parametrize("windows", WINDOWS, ids=str)
def test_several_sequences_and_little_memory(windows: tuple[int | None, ...], memory: float | None) -> None:
    """Some long, some short, some drawn; with little memory the young give way in the middle of it all."""
    prompts = [PROMPT, PROMPT[:3], [7] * 70, PROMPT, [11, 12] * 9]
    params = [SamplingParams(temperature=0.8 * (i % 2), seed=i, max_tokens=30 + 20 * i) for i in range(len(prompts))]

    def texts(speculator: Speculator | None) -> list[list[int]]:
        engine, _ = make_engine(windows, memory=memory, speculator=speculator)
        sequences = [Sequence(p, q) for p, q in zip(prompts, params, strict=True)]
        run(engine, sequences)
        engine.close()
        assert all(s.error is None for s in sequences)
        return [s.token_ids for s in sequences]

    plain = texts(None)
    rng = random.Random(1)

    def make(sequence: Sequence) -> list[Oracle]:
        number = next(i for i, t in enumerate(plain) if t[: sequence.num_prompt] == sequence.prompt_ids)
        return [Oracle(plain[number], lambda: rng.random() < 0.3, lambda: rng.randrange(9))]

    assert texts(Speculator(make, always=True)) == plain
    assert texts(Speculator(lambda sequence: [NgramProposer()], always=True)) == plain


def test_o24_the_first_guessed_id_is_checked_too() -> None:
    """Prompt [1, 1, 1]: the text says 1 again, the model does not."""
    engine, backend = make_engine(speculator=Speculator(lambda s: [NgramProposer()], max_draft=1, always=True))
    backend.script = {1: 7, 7: 1}
    sequence = Sequence([1, 1, 1], SamplingParams(temperature=0, max_tokens=9))
    run(engine, [sequence])
    engine.close()
    assert sequence.output_ids == [7, 1, 7, 1, 7, 1, 7, 1, 7] and sequence.num_drafted > 0


def fixed_times(speculator: Speculator, monkeypatch: pytest.MonkeyPatch) -> Speculator:
    """Steps cost what they usually do, not what the scripted model's take."""
    for _ in range(2):  # the first one is cold
        speculator.times.note(1, 4e-3)
    monkeypatch.setattr(speculator, "note_step", lambda rows, seconds: None)
    return speculator


def test_a_wrong_guess_is_soon_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    params = SamplingParams(temperature=0, max_tokens=200)
    text = answer(params)[0].token_ids
    speculator = fixed_times(Speculator(lambda s: [oracles(text)["wrong"]()]), monkeypatch)
    guessed, _ = answer(params, speculator)
    assert guessed.token_ids == text and 0 < guessed.num_drafted <= 40


def test_luck_is_found_out_without_computing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong at first, right from the middle on: what is not checked is compared all the same, so it is soon checked again."""
    params = SamplingParams(temperature=0, max_tokens=240)
    text = answer(params)[0].token_ids
    late = Oracle([(i + 1) % VOCAB_SIZE for i in text[:120]] + text[120:], lambda: False, lambda: 8)
    guessed, steps = answer(params, fixed_times(Speculator(lambda s: [late]), monkeypatch))
    assert guessed.token_ids == text
    assert guessed.num_accepted > 60 and steps < 200


def test_nan_in_a_guess_is_an_error_of_that_sequence() -> None:
    guesser = Oracle([*PROMPT, *[8] * 30], lambda: False, lambda: 4)
    engine, backend = make_engine(speculator=Speculator(lambda s: [guesser], always=True))
    backend.script = dict.fromkeys(range(VOCAB_SIZE), 8)
    backend.poison = {8}
    sequence = Sequence(PROMPT, SamplingParams(temperature=0, max_tokens=20))
    engine.add(sequence)
    while engine.has_work:
        engine.step()
    assert sequence.finish_reason == "error" and sequence.output_ids == [8]
    engine.close()
