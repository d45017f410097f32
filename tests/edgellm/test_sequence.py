"""Sequence: what it counts, when it ends, and what it takes back."""

from __future__ import annotations

import numpy as np

from edgellm.choosing import Choice
from edgellm.config import SamplingParams
from edgellm.sequence import Sequence, SequenceState


def test_it_counts_what_is_pending_and_what_is_new() -> None:
    sequence = Sequence([5, 6, 7])
    assert (sequence.num_prompt, sequence.num_pending, sequence.num_output) == (3, 3, 0)
    sequence.start(2)
    assert sequence.state is SequenceState.RUNNING and sequence.slot == 2
    sequence.advance(2)
    assert sequence.num_pending == 1
    sequence.advance(1)
    assert sequence.take(Choice(9), (), 100) is None
    assert (sequence.num_pending, sequence.output_ids, sequence.prompt_ids) == (1, [9], [5, 6, 7])


def test_a_pause_keeps_what_was_generated_and_when_it_began() -> None:
    sequence = Sequence([5, 6, 7], SamplingParams(seed=3))
    sequence.start(2, 1)
    assert (sequence.num_cached, sequence.num_reused, sequence.num_pending) == (1, 1, 2)
    sequence.advance(2)
    sequence.take(Choice(9), (), 100)
    began = sequence.started_s
    sequence.pause()
    assert (sequence.slot, sequence.state, sequence.num_cached) == (-1, SequenceState.WAITING, 0)
    sequence.start(0, 2)
    assert (sequence.started_s, sequence.num_reused, sequence.num_pending) == (began, 1, 2)
    assert sequence.output_ids == [9]


def test_it_ends_on_an_end_id_on_max_tokens_and_on_a_full_context() -> None:
    assert Sequence([1]).take(Choice(9), {9}, 100) == "stop"
    assert Sequence([1], SamplingParams(ignore_eos=True)).take(Choice(9), {9}, 100) is None
    limited = Sequence([1], SamplingParams(max_tokens=2))
    assert [limited.take(Choice(i), {9}, 100) for i in (2, 3)] == [None, "length"]
    assert [Sequence([1, 2]).take(Choice(3), {9}, limit) for limit in (3, 4)] == ["length", None]
    assert Sequence([1], SamplingParams(max_tokens=1)).take(Choice(9), {9}, 100) == "stop", "its own end comes first"
    assert Sequence([1] * 10**6).take(Choice(3), {9}, None) is None, "no end of the context"


def test_the_first_reason_to_finish_stays() -> None:
    sequence = Sequence([1])
    sequence.finish("stop")
    sequence.finish("cancelled")
    assert sequence.is_finished and sequence.finish_reason == "stop"


def test_logits_of_a_prompt_are_copied_piece_by_piece() -> None:
    sequence = Sequence([1, 2, 3], keep_logits=True)
    view = np.ones((2, 4), np.float32)
    sequence.advance(2)
    sequence.collect(view)
    view[:] = 2
    sequence.advance(1)
    sequence.collect(view[:1])
    assert sequence.logits is not None
    assert sequence.logits.tolist() == [[1] * 4, [1] * 4, [2] * 4]


def test_times_run_from_creation_to_the_last_token() -> None:
    sequence = Sequence([1])
    sequence.start(0)
    sequence.take(Choice(2), (), 9)
    sequence.take(Choice(3), (), 9)
    assert sequence.started_s is not None and sequence.first_token_s is not None and sequence.last_token_s is not None
    assert sequence.created_s <= sequence.started_s <= sequence.first_token_s <= sequence.last_token_s
    assert Sequence([1], created_s=1.5).created_s == 1.5
