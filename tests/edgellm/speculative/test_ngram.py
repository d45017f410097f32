"""The suffix automaton against a search by hand, and what is proposed from it."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgellm.speculative.ngram import NgramProposer, SuffixAutomaton


def longest_match(ids: list[int]) -> int:
    """Length of the longest end of ids that also ends earlier, by trying all."""
    for length in range(len(ids) - 1, 0, -1):
        if any(ids[end - length : end] == ids[-length:] for end in range(length, len(ids))):
            return length
    return 0


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 3), max_size=40))
def test_the_longest_end_that_occurred_before(ids: list[int]) -> None:
    automaton = SuffixAutomaton()
    for count, token_id in enumerate(ids, 1):
        automaton.append(token_id)
        length, place = automaton.match_length, automaton.match_place
        assert length == longest_match(ids[:count])
        if length:
            assert place < count - 1
            assert ids[place + 1 - length : place + 1] == ids[count - length : count]


def test_grows_in_linear_room_and_time() -> None:
    rng = random.Random(0)
    texts = {"one id": [7] * 20_000, "random": [rng.randrange(50_000) for _ in range(20_000)]}
    texts["repeating"] = [rng.randrange(100) for _ in range(500)] * 40
    for ids in texts.values():
        automaton, steps = SuffixAutomaton(), 0
        for token_id in ids:
            before = len(automaton.length)
            automaton.append(token_id)
            steps += len(automaton.length) - before
        assert len(automaton.length) <= 2 * len(ids)
        assert steps <= 2 * len(ids)


def test_proposes_what_followed_the_latest_occurrence() -> None:
    proposer = NgramProposer()
    text = [1, 2, 3, 10, 11, 9, 1, 2, 3, 20, 21, 9, 1, 2, 3]
    assert proposer.propose(text, 4).token_ids == [20, 21, 9, 1]
    assert proposer.propose([*text, 10], 4).token_ids == [11, 9, 1, 2], "the longer match wins over the later one"


def test_a_repetition_is_guessed_beyond_the_end() -> None:
    assert NgramProposer().propose([5, 6, 7, 5, 6, 7, 5, 6], 7).token_ids == [7, 5, 6, 7, 5, 6, 7]
    assert NgramProposer().propose([4, 4, 4], 3).token_ids == [4, 4, 4]


@pytest.mark.parametrize("text", [[], [1], [1, 2], [1, 2, 3]])
def test_nothing_to_say(text: list[int]) -> None:
    assert NgramProposer().propose(text, 5).token_ids == []


def test_a_text_that_was_cut_or_changed_is_read_anew() -> None:
    proposer = NgramProposer()
    proposer.propose([1, 2, 3, 4, 1, 2], 3)
    assert proposer.propose([1, 2, 3, 4], 3).token_ids == []
    assert proposer.propose([1, 2, 3, 4, 9, 1, 2], 2).token_ids == [3, 4]
    assert proposer.propose([1, 2, 3, 4, 9, 1, 2], 0).token_ids == []
