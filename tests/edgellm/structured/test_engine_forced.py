"""Forced tokens cost no forward pass each, and change nothing else; ends and errors on the way. A scripted model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scripted_model import VOCAB_SIZE, make_engine
from tiny_vocabulary import make_bpe

from edgellm.choosing import Chooser
from edgellm.config import SamplingParams
from edgellm.errors import OptionError
from edgellm.sequence import Sequence
from edgellm.structured import make_constraint
from edgellm.structured.constraint import GrammarConstraint
from edgellm.tokenizer import Tokenizer

TOKENIZER = Tokenizer(make_bpe(VOCAB_SIZE))  # single characters, blank to "N": a text is cut in one way only
FORM = r"(AB|AC) ABCDEFG [0-9]{2,4}: (IN|EMMA|NO)!"
PROMPT = TOKENIZER.encode("HELL")


def run(form: str = FORM, max_context: int = 256, more: int = 9, **params: Any) -> tuple[Sequence, int]:
    """-> the finished sequence, and how many forward passes it took. more: another prompt for each number."""
    engine, backend = make_engine(eog_ids=sorted(TOKENIZER.eog_ids), max_context=max_context)
    chosen = SamplingParams(regex=form, **{"temperature": 0.0, **params})
    chooser = Chooser(chosen, make_constraint(chosen, TOKENIZER, TOKENIZER.eog_ids))
    sequence = Sequence([*PROMPT, more], chosen, chooser=chooser)
    engine.add(sequence)
    while engine.has_work:
        engine.step()
    return sequence, len(backend.batches)


@pytest.mark.parametrize("more", range(3, 9))
def test_fewer_forward_passes_and_the_same_answer(more: int, monkeypatch: pytest.MonkeyPatch) -> None:
    quick, num_quick = run(more=more)
    monkeypatch.setattr(GrammarConstraint, "forced", lambda self: [])
    slow, num_slow = run(more=more)
    text = TOKENIZER.decode(quick.output_ids)
    assert text == TOKENIZER.decode(slow.output_ids) and quick.finish_reason == slow.finish_reason == "stop"
    assert quick.error is slow.error is None
    assert num_slow == slow.num_output and num_quick < quick.num_output / 2


@pytest.mark.parametrize("limit", range(1, 12))
def test_a_limit_ends_an_answer_inside_what_is_forced(limit: int) -> None:
    whole, _ = run()
    cut, _ = run(max_tokens=limit)
    assert cut.finish_reason == "length" and cut.output_ids == whole.output_ids[:limit]
    full, _ = run(max_context=len(PROMPT) + 1 + limit)
    assert full.finish_reason == "length" and full.output_ids == whole.output_ids[:limit]


def test_an_answer_that_is_forced_as_a_whole_takes_one_pass() -> None:
    sequence, num_passes = run("ABC")
    assert TOKENIZER.decode(sequence.output_ids) == "ABC" and sequence.finish_reason == "stop" and num_passes == 1


def test_what_no_token_can_write_is_an_error_of_this_sequence_alone() -> None:
    engine, _ = make_engine(eog_ids=sorted(TOKENIZER.eog_ids))
    params = SamplingParams(regex="AB[x-z]")  # the vocabulary has no small letters
    bad = Sequence(PROMPT, params, chooser=Chooser(params, make_constraint(params, TOKENIZER, TOKENIZER.eog_ids)))
    good = Sequence(PROMPT, SamplingParams(max_tokens=5, ignore_eos=True))
    engine.add(bad)
    engine.add(good)
    while engine.has_work:
        engine.step()
    assert isinstance(bad.error, OptionError) and "regex" in str(bad.error)
    assert good.error is None and good.num_output == 5


def test_without_the_models_own_end_a_form_still_ends() -> None:
    sequence, _ = run("A(B|C)", ignore_eos=True)
    assert TOKENIZER.decode(sequence.output_ids) in ("AB", "AC") and sequence.finish_reason == "stop"


def test_taken_back_ids_are_chosen_anew_within_the_form() -> None:
    params = SamplingParams(regex=FORM, temperature=0.0)
    chooser = Chooser(params, make_constraint(params, TOKENIZER, TOKENIZER.eog_ids))
    ids = list(PROMPT)
    rng = np.random.default_rng(0)
    for _ in range(5):
        choice = chooser.choose(rng.normal(size=VOCAB_SIZE).astype(np.float32), ids, len(PROMPT))
        for token_id in [choice.token_id]:
            ids.append(token_id)
            chooser.accept(token_id)
        for token_id in chooser.forced():
            ids.append(token_id)
            chooser.accept(token_id)
    (b,) = TOKENIZER.encode("B")
    before = TOKENIZER.decode(ids[len(PROMPT) :])
    assert before.startswith(("AB ABCDEFG ", "AC ABCDEFG "))
    count = len(ids) - len(PROMPT) - 1
    second = ids[len(PROMPT) + 1]
    chooser.take_back(ids, count)
    del ids[-count:]
    other = chooser.choose(np.zeros(VOCAB_SIZE, np.float32), ids, len(PROMPT)).token_id
    assert other != second and {other, second} == {b, *TOKENIZER.encode("C")}
