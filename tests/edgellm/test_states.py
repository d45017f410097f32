"""Layers with a state in the engine: nothing but the time depends on where records were written. Cases O16, O17."""

from __future__ import annotations

import random
from collections.abc import Sequence as ListOf

import pytest
from scripted_model import STATE, VOCAB_SIZE, ScriptedBackend, expected_logits, make_engine

from edgellm.banned import BannedTexts
from edgellm.cache import states
from edgellm.choosing import Chooser
from edgellm.config import SamplingParams
from edgellm.engine import Engine
from edgellm.errors import ContextError
from edgellm.sampling import Sampler
from edgellm.sequence import Sequence
from edgellm.speculative import Speculator
from edgellm.speculative.proposer import Guess

WINDOWS: list[tuple[int | None, ...]] = [(None, STATE), (20, STATE), (STATE,)]
windows_too = pytest.mark.parametrize("windows", WINDOWS, ids=str)


@pytest.fixture(params=["small", "large"])
def size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Whether records are written after every guess, and how far apart the places are that are kept."""
    monkeypatch.setattr(states, "PLACE_TOKENS", 64)
    if request.param == "large":
        monkeypatch.setattr(states, "SMALL_BYTES", 0)
    return str(request.param)


def expected(prompt: ListOf[int], params: SamplingParams, windows: ListOf[int | None]) -> list[int]:
    ids, sampler = list(prompt), Sampler(params)
    for _ in range(params.max_tokens or 0):
        ids.append(sampler.choose(expected_logits(ids, windows), ids, len(prompt)))
    return ids


def run(engine: Engine, *sequences: Sequence) -> None:
    for sequence in sequences:
        engine.add(sequence)
    while engine.has_work:
        engine.step()
    for sequence in sequences:
        assert sequence.error is None


def count_rows(backend: ScriptedBackend) -> int:
    count = sum(len(batch.token_ids) for batch in backend.batches)
    backend.batches.clear()
    return count


class Guesser:
    """Guesses `length()` ids of a known text, each wrong with a chance."""

    step_s = None

    def __init__(self, text: ListOf[int], chance: float, seed: int = 1) -> None:
        self._text, self._chance, self._rng = list(text), chance, random.Random(seed)

    def propose(self, token_ids: ListOf[int], max_tokens: int) -> Guess:
        right = self._text[len(token_ids) : len(token_ids) + min(max_tokens, self._rng.randrange(9))]
        return Guess(
            [(i + 1) % VOCAB_SIZE if self._rng.random() < self._chance else i for i in right], [1] * len(right)
        )

    def close(self) -> None:
        pass


@windows_too
@pytest.mark.parametrize("chance", [0.0, 0.4, 1.0])
def test_guesses_change_nothing(windows: tuple[int | None, ...], chance: float, size: str) -> None:
    params = SamplingParams(temperature=1.0, seed=7, max_tokens=50)
    prompt = list(range(40))
    text = expected(prompt, params, windows)
    speculator = Speculator(lambda sequence: [Guesser(text, chance, sequence.num_prompt)], always=True)
    engine, backend = make_engine(windows, speculator=speculator, prefill_chunk=32)
    one, other = Sequence(prompt, params), Sequence(prompt[:20], params)
    run(engine, one, other)
    assert one.token_ids == text
    assert other.token_ids == expected(prompt[:20], params, windows)
    if size == "small":  # nothing is fed twice
        rows = 60 + one.num_drafted + other.num_drafted + 50 - one.num_accepted + 50 - other.num_accepted - 2
        assert count_rows(backend) <= rows
    engine.close()


@windows_too
def test_banned_texts_take_ids_back(windows: tuple[int | None, ...], size: str) -> None:
    """Pieces are two letters, so that a text of three begins in one id and ends in a later one."""
    pieces = [bytes([97 + i % 7, 97 + i // 7]) for i in range(VOCAB_SIZE)]
    params = SamplingParams(temperature=1.0, seed=3, max_tokens=40)

    def answer(**options: object) -> list[int]:
        engine, _ = make_engine(windows, **options)  # type: ignore[arg-type]
        watcher = BannedTexts(["aab", "bcde", "ddddd", "ca", "gf", "badc"], lambda token_id: pieces[token_id])
        sequence = Sequence(list(range(30)), params, chooser=Chooser(params, watcher=watcher))
        run(engine, sequence)
        engine.close()
        return sequence.token_ids

    found = answer(prefill_chunk=16)
    assert found == answer(prefill_chunk=5)
    assert found != expected(list(range(30)), params, windows), "no id was ever taken back"
    for chance in (0.0, 0.4):
        speculator = Speculator(lambda sequence, c=chance: [Guesser(found, c)], always=True)  # type: ignore[misc]
        assert answer(speculator=speculator) == found


def test_who_went_back_to_the_start_takes_only_what_its_own_adapters_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sequence, "domain", property(lambda self: b"style"))
    engine, _ = make_engine((None,), prefill_chunk=16)
    asked: list[bytes] = []
    cache, plain, rewind = engine._cache, engine._cache.open, engine._cache.rewind

    def moved_on(slot: int, num_tokens: int) -> int:
        if num_tokens:
            raise ContextError("the window has moved on")
        return rewind(slot, 0)

    monkeypatch.setattr(cache, "rewind", moved_on)
    monkeypatch.setattr(cache, "open", lambda ids=(), domain=b"": asked.append(domain) or plain(ids, domain))
    pieces = [bytes([97 + i % 7, 97 + i // 7]) for i in range(VOCAB_SIZE)]
    params = SamplingParams(temperature=1.0, seed=3, max_tokens=40)
    watcher = BannedTexts(["aab", "bcde", "ddddd", "ca", "gf", "badc"], lambda token_id: pieces[token_id])
    run(engine, Sequence(list(range(30)), params, chooser=Chooser(params, watcher=watcher)))
    assert len(asked) > 1 and set(asked) == {b"style"}
    engine.close()


def test_what_lies_ready_for_a_prompt_that_begins_alike(size: str) -> None:
    engine, backend = make_engine((None, STATE), max_context=512, prefill_chunk=512)
    params = SamplingParams(temperature=0.0, max_tokens=5)
    prompt = [i * 7 % 50 for i in range(200)]

    def ask(ids: list[int], reused: int) -> list[int]:
        sequence = Sequence(ids, params)
        run(engine, sequence)
        assert sequence.token_ids == expected(ids, params, (None, STATE))
        assert sequence.num_reused == reused
        assert count_rows(backend) == len(ids) - reused + 4
        return sequence.token_ids

    said = ask(prompt, 0)
    ask(prompt, 199)  # all but the last token
    ask([*prompt, 3], 200)  # the whole prompt
    ask([*said, 9, 9], 204)  # as far as was computed
    ask([*prompt[:195], 1, 2, 3], 192)  # the last place at which prompts may part
    ask([*prompt[:130], 1, 2, 3], 128)
    ask([*prompt[:100], 1, 2, 3], 0)  # two places a step
    engine.close()


def test_several_answers_to_one_prompt_share_it(size: str) -> None:
    engine, backend = make_engine((None, STATE), prefill_chunk=64)
    first = Sequence(list(range(50)), SamplingParams(temperature=1.0, seed=1, max_tokens=10))
    rest = [Sequence(range(50), SamplingParams(temperature=1.0, seed=s, max_tokens=10), after=first) for s in (2, 3)]
    run(engine, first, *rest)
    for sequence in (first, *rest):
        assert sequence.token_ids == expected(range(50), sequence.params, (None, STATE))
    assert [sequence.num_reused for sequence in rest] == [49, 49]
    assert count_rows(backend) == 50 + 9 + 2 * 10
    engine.close()


@windows_too
def test_an_interrupted_step_leaves_no_trace(windows: tuple[int | None, ...], size: str) -> None:
    engine, backend = make_engine(windows, prefill_chunk=10)
    params = SamplingParams(temperature=0.0, max_tokens=20)
    sequence, number = Sequence(range(35), params), 0
    engine.add(sequence)
    while engine.has_work:
        number += 1
        if number % 3 == 0:
            backend.abort()
        engine.step()
    assert sequence.token_ids == expected(range(35), params, windows) and backend.num_aborted > 5
    engine.close()
