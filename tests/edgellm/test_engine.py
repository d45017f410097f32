"""Engine on a scripted model: what a sequence gets depends on nothing but itself. Cases O16, O25."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted_model import STATE, VOCAB_SIZE, expected_logits, make_engine

from edgellm.config import SamplingParams
from edgellm.engine import Engine, default_max_context
from edgellm.errors import ContextError, EdgeLLMError, OptionError
from edgellm.sampling import Sampler
from edgellm.sequence import Sequence

GREEDY = SamplingParams(temperature=0.0)


def expected_output(prompt: list[int], params: SamplingParams, windows: list[int | None], count: int) -> list[int]:
    """The first `count` ids after a prompt, without engine, cache or batch."""
    ids = list(prompt)
    sampler = Sampler(params)
    for _ in range(count):
        ids.append(sampler.choose(expected_logits(ids, windows), ids, len(prompt)))
    return ids[len(prompt) :]


def drain(engine: Engine) -> None:
    while engine.has_work:
        engine.step()


def drain_runnable(engine: Engine) -> None:
    while engine.can_run:
        engine.step()


SHARED = [i * 7 % VOCAB_SIZE for i in range(90)]
PROMPTS = st.lists(st.integers(0, VOCAB_SIZE - 1), min_size=1, max_size=90) | st.builds(
    lambda cut, more: SHARED[:cut] + more, st.integers(0, 80), st.lists(st.integers(0, 2), min_size=1, max_size=10)
)
PARAMS = st.builds(
    SamplingParams,
    max_tokens=st.integers(1, 12),
    temperature=st.sampled_from([0.0, 1.0]),
    top_k=st.sampled_from([0, 5]),
    seed=st.integers(0, 5),
)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([[None], [8], [None, 70], [1, 65], [None, STATE], [8, STATE], [STATE]]),
    st.sampled_from([1, 3, 20, 64]),
    st.integers(1, 4),
    st.sampled_from([None, 1.0, 1.6]),
    st.lists(st.tuples(PROMPTS, PARAMS, st.integers(0, 8), st.none() | st.integers(1, 8)), min_size=1, max_size=6),
)
def test_each_output_equals_its_solo_run(
    windows: list[int | None],
    chunk: int,
    max_sequences: int,
    memory: float | None,
    requests: list[tuple[list[int], SamplingParams, int, int | None]],
) -> None:
    """Requests arrive and are cancelled at any step, in chunks of any size, more than there are slots.

    Some begin alike; memory: None for plenty, or so many times what one sequence needs, so that they give way to others.
    """
    engine, backend = make_engine(windows, 110, (), chunk, max_sequences, memory)
    sequences = [Sequence(prompt, params) for prompt, params, _, _ in requests]
    emitted: dict[Sequence, list[int]] = {sequence: [] for sequence in sequences}
    number = 0
    while engine.has_work or any(arrival >= number for _, _, arrival, _ in requests):
        for sequence, (_, _, arrival, patience) in zip(sequences, requests, strict=True):
            if arrival == number:
                engine.add(sequence)
            if patience is not None and arrival + patience == number:
                engine.cancel(sequence)
        for sequence, token_id in engine.step():
            emitted[sequence].append(token_id)
        number += 1
    for sequence, (prompt, params, _, patience) in zip(sequences, requests, strict=True):
        assert sequence.output_ids == emitted[sequence]
        assert sequence.output_ids == expected_output(prompt, params, windows, sequence.num_output)
        assert sequence.finish_reason == "length" or patience is not None
        if sequence.finish_reason == "length":
            assert sequence.num_output == params.max_tokens or len(sequence.token_ids) == 110
    assert all((table == -1).all() for table in backend._cache.tables)
    engine.close()


@pytest.mark.parametrize("chunk", [1, 3, 8, 20])
def test_window_lengths_around_the_edge_equal_a_cache_free_model(chunk: int) -> None:
    engine, _ = make_engine([8], 300, (), chunk, 1)
    prompts = [list(range(20)), [*range(5), *range(30, 45)], list(range(20))]
    prompts += [list(range(n)) for n in (7, 8, 9, 15, 16, 17)] + [[i % 50 for i in range(200)]]
    for prompt in prompts:
        sequence = Sequence(prompt, keep_logits=True)
        engine.add(sequence)
        drain(engine)
        assert sequence.logits is not None and sequence.num_output == 0
        assert sequence.logits.shape == (len(prompt), VOCAB_SIZE)
        for i in range(len(prompt)):
            assert (sequence.logits[i] == expected_logits(prompt[: i + 1], [8])).all()


def test_logits_of_all_positions_beside_others() -> None:
    engine, _ = make_engine(max_context=40, prefill_chunk=7)
    prompt = list(range(40))  # the whole context: nothing is generated
    asked, beside = Sequence(prompt, keep_logits=True), Sequence([1, 2, 3], SamplingParams(max_tokens=9, temperature=0))
    engine.add(beside)
    engine.add(asked)
    drain(engine)
    assert asked.logits is not None
    expected = [expected_logits(prompt[: i + 1], [None]) for i in range(40)]
    assert (asked.logits == np.array(expected)).all()
    assert beside.output_ids == expected_output([1, 2, 3], GREEDY, [None], 9)


def test_identical_requests_give_identical_answers_and_seeds_matter() -> None:
    outputs = []
    engine, _ = make_engine(prefill_chunk=31)
    for seed in (1, 2, 1):
        for length in (1, 2, 31, 32, 33):
            sequence = Sequence(list(range(length)), SamplingParams(seed=seed, max_tokens=8, temperature=1.5))
            engine.add(sequence)
            drain(engine)
            outputs.append(sequence.output_ids)
    assert outputs[:5] == outputs[10:] and outputs[:5] != outputs[5:10]


def test_the_context_rule() -> None:
    engine, backend = make_engine(max_context=256, prefill_chunk=64)
    for size in (256, 257, 5000):
        with pytest.raises(ContextError, match=f"{size} tokens.*max_context is 256"):
            engine.add(Sequence([1] * size))
    assert not engine.has_work and backend.batches == []
    with pytest.raises(ContextError, match="257 tokens"):
        engine.add(Sequence([1] * 257, keep_logits=True))
    for size, count in ((255, 1), (250, 6)):
        sequence = Sequence([1] * size, SamplingParams(max_tokens=100))
        engine.add(sequence)
        drain(engine)
        assert (sequence.num_output, sequence.finish_reason) == (count, "length")


@pytest.mark.parametrize("ids", [[-1], [0, VOCAB_SIZE], [1 << 40]])
def test_ids_out_of_range_are_refused(ids: list[int]) -> None:
    engine, _ = make_engine()
    with pytest.raises(OptionError, match=f"id {ids[-1]} is out of range.*0 to {VOCAB_SIZE - 1}"):
        engine.add(Sequence(ids))
    with pytest.raises(OptionError, match="empty"):
        engine.add(Sequence([]))
    assert not engine.has_work


def test_any_end_id_stops_unless_ignored() -> None:
    engine, backend = make_engine(eog_ids=[7, 9])
    backend.script = {1: 2, 2: 9, 9: 3, 3: 3}
    stopped, ignoring = (
        Sequence([1], GREEDY),
        Sequence([1], SamplingParams(temperature=0, ignore_eos=True, max_tokens=4)),
    )
    engine.add(stopped)
    engine.add(ignoring)
    drain(engine)
    assert (stopped.output_ids, stopped.finish_reason) == ([2, 9], "stop")
    assert ignoring.output_ids[0] == 2 and len(ignoring.output_ids) == 4 and ignoring.finish_reason == "length"
    assert not {7, 9}.intersection(ignoring.output_ids), "an end that is ignored is never chosen"


def test_cancelling_frees_the_slot_at_once() -> None:
    engine, _ = make_engine(max_sequences=1)
    first, second = Sequence([1], GREEDY), Sequence([2], SamplingParams(temperature=0, max_tokens=2))
    engine.add(first)
    engine.add(second)
    engine.step()
    assert second.slot == -1
    engine.cancel(first)
    assert first.finish_reason == "cancelled" and engine._cache.num_free_slots == 1
    assert engine.step() == [(second, second.token_ids[-1])]
    engine.cancel(second, "stop")
    engine.cancel(second)
    assert second.finish_reason == "stop" and not engine.has_work and engine.step() == []


def test_unusable_logits_end_their_sequence_alone() -> None:
    engine, backend = make_engine()
    backend.poison = {40}
    bad, good = Sequence([1, 40], GREEDY), Sequence([1, 2], SamplingParams(temperature=0, max_tokens=5))
    backend.script = dict.fromkeys(range(40), 3)
    engine.add(bad)
    engine.add(good)
    drain(engine)
    assert bad.finish_reason == "error" and "logit is nan" in str(bad.error)
    assert good.output_ids == [3] * 5


def test_an_interrupted_step_is_done_again() -> None:
    engine, backend = make_engine(prefill_chunk=4)
    sequence = Sequence(list(range(10)), SamplingParams(temperature=0, max_tokens=6))
    engine.add(sequence)
    run, calls = backend.run, 0

    def interrupted(batch: object) -> object:
        nonlocal calls
        calls += 1
        if calls % 2:
            raise KeyboardInterrupt
        return run(batch)  # type: ignore[arg-type]

    backend.run = interrupted  # type: ignore[assignment, method-assign]
    while engine.has_work:
        try:
            engine.step()
        except KeyboardInterrupt:
            continue
    assert sequence.output_ids == expected_output(list(range(10)), GREEDY, [None], 6)


def test_close_ends_everything_and_later_use_is_a_clear_error() -> None:
    engine, backend = make_engine()
    sequence = Sequence([1], GREEDY)
    engine.add(sequence)
    engine.step()
    engine.close()
    engine.close()
    assert backend.is_closed and sequence.is_finished and "closed before" in str(sequence.error)
    for call in (engine.step, lambda: engine.add(Sequence([1]))):
        with pytest.raises(EdgeLLMError, match="closed; load it again"):
            call()
    engine.cancel(sequence)


def test_default_context() -> None:
    values = [default_max_context(trained) for trained in (None, 0, -5, 2048, 4096, 131072, 1048576, 1 << 31)]
    assert values == [4096, 4096, 4096, 2048, 4096, 4096, 4096, 4096]


def test_an_interrupted_prompt_is_computed_again_and_others_keep_their_bits() -> None:
    engine, backend = make_engine(prefill_chunk=8)
    beside, prompt = list(range(20)), [7] * 30
    other, unwanted = Sequence(beside, SamplingParams(temperature=1.3, seed=4, max_tokens=12)), Sequence(prompt, GREEDY)
    engine.add(other)
    engine.add(unwanted)
    for _ in range(5):
        engine.step()
    run = backend.run

    def interrupted(batch: object) -> object:
        engine.interrupt(unwanted)
        return run(batch)  # type: ignore[arg-type]

    before = other.num_cached, other.num_output, unwanted.num_cached
    backend.run = interrupted  # type: ignore[assignment, method-assign]
    assert engine.step() == [] and backend.num_aborted == 1
    backend.run = run  # type: ignore[method-assign]
    assert (other.num_cached, other.num_output, unwanted.num_cached) == before
    assert engine.step() == [], "a step that is for nothing does not begin"
    engine.cancel(unwanted)
    drain(engine)
    params = SamplingParams(temperature=1.3, seed=4, max_tokens=12)
    assert other.output_ids == expected_output(beside, params, [None], 12)


def test_a_token_beside_those_of_others_is_not_interrupted() -> None:
    engine, backend = make_engine()
    sequences = [Sequence([i], SamplingParams(temperature=0, max_tokens=9)) for i in (1, 2)]
    for sequence in sequences:
        engine.add(sequence)
    engine.step()
    engine.interrupt(sequences[0])
    assert len(engine.step()) == 2 and backend.num_aborted == 0
    engine.cancel(sequences[1])
    engine.interrupt(sequences[0])
    assert engine.step() == [], "alone it is"


def test_a_sequence_waits_for_its_reader_and_gives_its_place_to_others() -> None:
    """A reader that sleeps: nothing is computed for it, and with one slot another gets it."""
    engine, backend = make_engine(max_sequences=1)
    slow, quick = Sequence([1, 2, 3], GREEDY), Sequence([4], SamplingParams(temperature=0, max_tokens=5))
    slow.max_ahead = 4
    engine.add(slow)
    drain_runnable(engine)
    assert slow.num_output == 4 and engine.has_work and not engine.can_run and engine.step() == []
    count = len(backend.batches)
    engine.add(quick)
    drain_runnable(engine)
    assert quick.output_ids == expected_output([4], GREEDY, [None], 5)
    assert slow.slot == -1 and slow.num_output == 4 and len(backend.batches) == count + 5
    for read in (1, 3, 7, 8):
        slow.num_read = read
        drain_runnable(engine)
        assert slow.num_output == read + 4
    assert slow.output_ids == expected_output([1, 2, 3], GREEDY, [None], 12)
    engine.close()


def test_idle_sequences_give_memory_first() -> None:
    engine, _ = make_engine(max_context=128, max_sequences=3, memory=1.5)
    slow, quick = Sequence([1] * 70, GREEDY), Sequence([2] * 60, SamplingParams(temperature=0, max_tokens=20))
    slow.max_ahead = 3
    engine.add(slow)
    engine.add(quick)
    drain_runnable(engine)
    assert quick.output_ids == expected_output([2] * 60, GREEDY, [None], 20)
    slow.max_ahead = None
    slow.params = SamplingParams(temperature=0, max_tokens=10)
    drain(engine)
    assert slow.output_ids == expected_output([1] * 70, GREEDY, [None], 10)


def test_an_unexpected_error_in_a_choice_ends_its_sequence_alone() -> None:
    engine, _ = make_engine()
    bad, good = Sequence([1], GREEDY), Sequence([2], SamplingParams(temperature=0, max_tokens=5))
    bad.chooser.choose = None  # type: ignore[assignment, method-assign]
    engine.add(bad)
    engine.add(good)
    drain(engine)
    assert bad.finish_reason == "error" and isinstance(bad.error, TypeError)
    assert good.output_ids == expected_output([2], GREEDY, [None], 5)
